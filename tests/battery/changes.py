"""The steps that every fixture goes through; after each one the oracle is asked.

A step is one or more transactions on the sources. Steps build on each other, so their order counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from tests.battery.schema import ROWS

Connection = psycopg.Connection[tuple[object, ...]]
Change = Callable[[Connection], None]


@dataclass(frozen=True)
class Step:
    """A named change; `is_quiet` says that it leaves all sources as they were.

    `rebuilds` names the sources whose readers may be rebuilt instead of following the change.
    """

    name: str
    change: Change
    is_quiet: bool = False
    rebuilds: frozenset[str] = field(default_factory=frozenset)


def _sql(*transactions: str) -> Change:
    """Run each text as one transaction of its own; it may hold several statements."""

    def change(conn: Connection) -> None:
        for text in transactions:
            with conn.transaction():
                conn.execute(text.encode())

    return change


def _rolled_back(text: str) -> Change:
    def change(conn: Connection) -> None:
        with conn.transaction(force_rollback=True):
            conn.execute(text.encode())

    return change


_COPIED: dict[str, tuple[tuple[object, ...], ...]] = {
    "shop.events": (("a", 1, "x"), ("e", 9, None), (None, None, None)),
    "shop.orders (id, customer_id, price, units)": ((80, 1, "1.00", 5), (81, None, None, None)),
    "shop.readings (sensor, day, value)": ((3, "2024-01-01", 1), (13, None, 2)),
}


def _copied(conn: Connection) -> None:
    with conn.transaction(), conn.cursor() as cursor:
        for target, rows in _COPIED.items():
            with cursor.copy(f"COPY {target} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)


def _half_rolled_back(conn: Connection) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO shop.events VALUES ('kept', 1, 'x')")
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO shop.events VALUES ('lost', 1, 'x')")
            conn.execute("DELETE FROM shop.orders")
            conn.execute("UPDATE shop.customers SET region = 'lost'")
        conn.execute("UPDATE shop.orders SET units = units + 1 WHERE id = 1")


def _frozen_writer(conn: Connection) -> None:
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        with conn.transaction():
            conn.execute("UPDATE shop.orders SET price = price + 1 WHERE customer_id = 1")
            conn.execute("INSERT INTO shop.events VALUES ('a', 5, 'frozen')")
            conn.execute("DELETE FROM shop.events WHERE other = 'y'")
    finally:
        conn.isolation_level = None


_EMPTY = (
    "DELETE FROM shop.orders; DELETE FROM shop.customers; DELETE FROM shop.events;"
    ' DELETE FROM "Mixed Case"."Order"; DELETE FROM shop.readings;'
    " DELETE FROM shop.things"
)
_TRUNCATE = (
    'TRUNCATE shop.customers, shop.orders, shop.events, "Mixed Case"."Order", shop.readings,'
    " shop.things"
)

STEPS: tuple[Step, ...] = (
    Step("nothing", _sql("SELECT"), is_quiet=True),
    Step(
        "insert",
        _sql(
            "INSERT INTO shop.customers (id, name, region, vip, credit) VALUES"
            " (6, 'Eve', 'east', true, 1), (7, 'Ada', NULL, false, NULL)",
            "INSERT INTO shop.orders (id, customer_id, amount, price, qty, units, rate, at)"
            " VALUES (8, 6, 3, 3, 4, 4, 2, '2024-05-05'), (9, 6, 3.000, 3, 4, 4, 2, '2024-05-05'),"
            " (10, NULL, NULL, NULL, 1, 1, NULL, NULL)",
            "INSERT INTO shop.events VALUES ('a', 2, 'x'), ('e', 5, 'z')",
            """INSERT INTO "Mixed Case"."Order" VALUES (3, 3, 'three', 'w', 9, 'i', 100)""",
            "INSERT INTO shop.readings VALUES (5, '2024-02-02', 8, 'l'), (15, NULL, 9, 'h')",
            "INSERT INTO shop.things (id, n, f, doc, span, grid, code, short, lasts) VALUES"
            " (7, 1.000, 0, '{\"a\": 1}', '[1,4]', '{1,2}', 'a', 'ab', '24 hours'),"
            " (8, 123456789012345678901234567890.123456789, 'NaN', NULL, NULL, NULL, NULL, 'c',"
            " NULL)",
        ),
    ),
    Step(
        "update of values",
        _sql(
            "UPDATE shop.customers SET name = upper(name), credit = credit + 0.25, mood = 'ok',"
            " tags = tags || '{z}', profile = profile || '{\"z\": 1}' WHERE id IN (1, 2)",
            "UPDATE shop.orders SET amount = amount + 1, price = price * 2, units = units + 1,"
            " note = 'z' WHERE id IN (1, 3, 6, 7)",
            "UPDATE shop.events SET value = value + 1 WHERE kind IN ('a', 'b')",
            """UPDATE "Mixed Case"."Order" SET "A" = a, a = "A", "select" = "user",
               "100%" = "100%" + 1""",
            "UPDATE shop.readings SET value = value * 2, label = 'changed' WHERE day IS NOT NULL",
            "UPDATE shop.things SET n = n * 1.50, f = -f, doc = '{\"a\" : 1}', mood = 'ok',"
            " spot = spot + '(1,0)', span = span * '[2,9]', home.note = '{}', raw = raw || 'x',"
            " bits = bits || B'1', cost = cost * 2, words = words || 'dog', short = 'z',"
            " grid = grid || grid, parts[1] = ROW(9, NULL) WHERE id IN (1, 3, 5)",
        ),
    ),
    Step(
        "update of keys",
        _sql(
            "UPDATE shop.orders SET customer_id = 2 WHERE customer_id = 1",
            "UPDATE shop.orders SET id = id + 100 WHERE id IN (2, 3)",
            "UPDATE shop.events SET kind = 'b' WHERE kind = 'a' AND other = 'x'",
            """UPDATE "Mixed Case"."Order" SET "Group" = 'h', "from" = 1""",
            "UPDATE shop.readings SET sensor = sensor + 1 WHERE sensor IN (1, 11)",
            "UPDATE shop.things SET f = r, r = f, code = 'b', lasts = '30 days', span = '[1,5)',"
            " seen = '10:00+00' WHERE id IN (1, 2)",
        ),
    ),
    Step(
        "update of a key moves rows between partitions",
        _sql("UPDATE shop.readings SET sensor = 12 WHERE sensor = 2"),
    ),
    Step(
        "NULLs in",
        _sql(
            "UPDATE shop.customers SET name = NULL, region = NULL, credit = NULL, vip = NULL"
            " WHERE id IN (1, 5)",
            "UPDATE shop.orders SET customer_id = NULL, amount = NULL, price = NULL, units = NULL,"
            " rate = NULL WHERE id IN (1, 7, 8)",
            "UPDATE shop.events SET kind = NULL, value = NULL WHERE kind = 'b'",
            'UPDATE "Mixed Case"."Order" SET "A" = NULL, "Group" = NULL',
            "UPDATE shop.readings SET day = NULL, value = NULL",
            "UPDATE shop.things SET n = NULL, f = NULL, doc = NULL, spot = NULL, home = NULL,"
            " grid = NULL, code = NULL, mood = NULL, raw = NULL WHERE id IN (1, 2, 4)",
        ),
    ),
    Step(
        "NULLs out",
        _sql(
            "UPDATE shop.customers SET name = 'Nul', region = 'north', credit = 2, vip = true"
            " WHERE name IS NULL",
            "UPDATE shop.orders SET customer_id = 4, amount = 4, price = 4, units = 4, rate = 4"
            " WHERE customer_id IS NULL",
            "UPDATE shop.events SET kind = 'n', value = 0 WHERE kind IS NULL AND value IS NULL",
            'UPDATE "Mixed Case"."Order" SET "A" = 1 WHERE "A" IS NULL',
            "UPDATE shop.readings SET day = '2024-01-01', value = sensor WHERE sensor > 5",
            "UPDATE shop.things SET n = 1.0, f = '-0', doc = '1', spot = '(0,0)',"
            " home.spot = '(1,1)', grid = '{{NULL}}', code = 'A', mood = 'sad', raw = ''"
            " WHERE n IS NULL",
        ),
    ),
    Step(
        "duplicates",
        _sql(
            "INSERT INTO shop.events SELECT * FROM shop.events",
            'INSERT INTO "Mixed Case"."Order" SELECT * FROM "Mixed Case"."Order"',
            "INSERT INTO shop.readings SELECT * FROM shop.readings",
        ),
    ),
    Step(
        "one of n equal rows goes",
        _sql(
            "DELETE FROM shop.events WHERE ctid IN"
            " (SELECT min(ctid) FROM shop.events GROUP BY kind, value, other)",
            'DELETE FROM "Mixed Case"."Order" WHERE ctid ='
            ' (SELECT min(ctid) FROM "Mixed Case"."Order")',
            "DELETE FROM shop.readings_high WHERE ctid ="
            " (SELECT max(ctid) FROM shop.readings_high)",
        ),
    ),
    Step(
        "both sides of a join at once",
        _sql(
            "INSERT INTO shop.customers (id, name, region, vip) VALUES (20, 'Two', 'south', true);"
            " INSERT INTO shop.orders (id, customer_id, price, units) VALUES (20, 20, 20, 20),"
            " (21, 20, 21, 21);"
            " UPDATE shop.customers SET region = 'west', name = 'Bo' WHERE id = 2;"
            " UPDATE shop.orders SET price = price + 1, units = 3 WHERE customer_id = 2;"
            " DELETE FROM shop.orders WHERE id = 9; DELETE FROM shop.customers WHERE id = 7;"
            " INSERT INTO shop.events VALUES ('west', 2, 'west'), ('south', 20, 'south')"
        ),
    ),
    Step(
        "the join key moves and its partner goes",
        _sql(
            "UPDATE shop.orders SET customer_id = 6 WHERE customer_id = 20;"
            " DELETE FROM shop.customers WHERE id = 20;"
            " UPDATE shop.events SET value = 6 WHERE value = 20;"
            " UPDATE shop.customers SET id = 21 WHERE id = 3"
        ),
    ),
    Step(
        "keys swap",
        _sql(
            "UPDATE shop.orders SET customer_id = CASE customer_id WHEN 2 THEN 4 ELSE 2 END"
            " WHERE customer_id IN (2, 4);"
            " UPDATE shop.events SET kind = CASE kind WHEN 'a' THEN 'n' ELSE 'a' END"
            " WHERE kind IN ('a', 'n')",
            "UPDATE shop.orders SET id = -id WHERE id IN (4, 5);"
            " UPDATE shop.orders SET id = CASE id WHEN -4 THEN 5 ELSE 4 END WHERE id IN (-4, -5)",
        ),
    ),
    Step(
        "insert and delete at once",
        _sql(
            "INSERT INTO shop.customers (id, name, region, vip) VALUES (30, 'Tmp', 'tmp', true);"
            " INSERT INTO shop.orders (id, customer_id, price, units) VALUES (30, 30, 1, -999);"
            " INSERT INTO shop.events VALUES ('tmp', 999, 'tmp');"
            " INSERT INTO shop.readings VALUES (4, '2030-01-01', 999, 'tmp');"
            " DELETE FROM shop.customers WHERE id = 30; DELETE FROM shop.events WHERE kind = 'tmp';"
            " DELETE FROM shop.readings WHERE label = 'tmp'"
        ),
    ),
    Step(
        "update and undo at once",
        _sql(
            "UPDATE shop.orders SET price = price + 1, units = units - 1, note = note || '!';"
            " UPDATE shop.orders SET price = price - 1, units = units + 1,"
            " note = left(note, length(note) - 1)"
        ),
    ),
    Step("an update that changes nothing", _sql("UPDATE shop.orders SET price = price"), True),
    Step(
        "rollback",
        _rolled_back(
            "DELETE FROM shop.orders; INSERT INTO shop.events VALUES ('lost', 1, 'lost');"
            " TRUNCATE shop.readings; UPDATE shop.customers SET region = 'lost'"
        ),
        is_quiet=True,
    ),
    Step("rollback to a savepoint", _half_rolled_back),
    Step("a writer with a frozen snapshot", _frozen_writer),
    Step(
        "ON CONFLICT",
        _sql(
            "INSERT INTO shop.customers (id, name, region) VALUES (1, 'Con', 'east'),"
            " (40, 'New', 'east') ON CONFLICT (id) DO UPDATE SET name = excluded.name,"
            " region = excluded.region",
            "INSERT INTO shop.orders (id, units) VALUES (1, 1), (40, 40) ON CONFLICT DO NOTHING",
        ),
    ),
    Step(
        "MERGE",
        _sql(
            "MERGE INTO shop.orders o USING (VALUES (1, 11), (40, -1), (41, 41)) AS v (id, units)"
            " ON o.id = v.id WHEN MATCHED AND v.units < 0 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET units = v.units, price = 7"
            " WHEN NOT MATCHED THEN INSERT (id, units, customer_id) VALUES (v.id, v.units, 1)",
            "MERGE INTO shop.readings r USING (VALUES (12, 3.5), (16, 4.5)) AS v (sensor, value)"
            " ON r.sensor = v.sensor WHEN MATCHED THEN UPDATE SET value = v.value"
            " WHEN NOT MATCHED THEN INSERT (sensor, value) VALUES (v.sensor, v.value)",
        ),
    ),
    Step("COPY", _copied),
    Step(
        "a writable CTE over two tables",
        _sql(
            "WITH gone AS (DELETE FROM shop.events WHERE kind = 'a' RETURNING value),"
            " more AS (INSERT INTO shop.customers (id, name, region)"
            " SELECT 50, 'Cte', 'north' FROM gone LIMIT 1 RETURNING id)"
            " UPDATE shop.orders SET units = 50 WHERE id IN (1, 4)",
        ),
    ),
    Step(
        "foreign-key cascades",
        _sql(
            "UPDATE shop.customers SET id = id + 1000 WHERE id IN (1, 4)",
            "DELETE FROM shop.customers WHERE id IN (2, 1004)",
        ),
    ),
    Step(
        "writes to a partition by its own name",
        _sql(
            "INSERT INTO shop.readings_high (label, value, sensor, day)"
            " VALUES ('leaf', 0.25, 13, '2024-04-04'), ('leaf', 0.25, 13, '2024-04-04')",
            "UPDATE shop.readings_low SET value = 100 WHERE sensor = 3",
            "DELETE FROM shop.readings_low WHERE sensor = 5",
        ),
    ),
    Step(
        "TRUNCATE of a partition",
        _sql(
            "TRUNCATE shop.readings_high; INSERT INTO shop.readings VALUES (14, NULL, 1, 'after')"
        ),
    ),
    Step(
        "special floats come and go",
        _sql(
            "INSERT INTO shop.customers (id, region) VALUES (60, 'east');"
            " INSERT INTO shop.orders (id, customer_id, amount, price, rate, thin) VALUES"
            " (60, 60, 'NaN', 'NaN', 'NaN', '-0'), (61, 60, 'Infinity', 1.5, 'Infinity', 0),"
            " (62, 60, '-Infinity', 2.25, '-Infinity', 1), (63, 60, 1.50, 0.25, 0.25, 2)"
        ),
    ),
    Step("NaN goes", _sql("DELETE FROM shop.orders WHERE id = 60")),
    Step("infinity goes", _sql("DELETE FROM shop.orders WHERE id IN (61, 62)")),
    Step(
        "the extremum goes",
        _sql(
            "DELETE FROM shop.orders WHERE units = (SELECT max(units) FROM shop.orders)",
            "DELETE FROM shop.orders WHERE price = (SELECT min(price) FROM shop.orders)",
            "DELETE FROM shop.events WHERE value = (SELECT max(value) FROM shop.events)",
            "DELETE FROM shop.things WHERE n = (SELECT max(n) FROM shop.things)",
        ),
    ),
    Step(
        "many transactions before one refresh",
        _sql(*(f"INSERT INTO shop.events VALUES ('m', {n % 3}, NULL)" for n in range(7))),
    ),
    Step(
        "TRUNCATE",
        _sql('TRUNCATE shop.events, "Mixed Case"."Order"', "TRUNCATE shop.customers CASCADE"),
    ),
    Step(
        "TRUNCATE and INSERT at once",
        _sql(
            "INSERT INTO shop.events VALUES ('before', 1, 'x');"
            " TRUNCATE shop.events, shop.readings;"
            " INSERT INTO shop.events VALUES ('after', 1, 'x'), ('after', 1, 'x');"
            " INSERT INTO shop.readings VALUES (1, '2024-01-01', 1, 'after')"
        ),
    ),
    Step("all sources empty", _sql(_EMPTY)),
    Step("all sources filled again", _sql(ROWS)),
    Step("all sources replaced at once", _sql(f"{_EMPTY}; {ROWS}")),
    Step("all sources truncated", _sql(_TRUNCATE)),
    Step("refilled after TRUNCATE", _sql(ROWS)),
    Step("all sources truncated and filled at once", _sql(f"{_TRUNCATE}; {ROWS}")),
    Step(
        "a partition is attached with its rows",
        _sql(
            "CREATE TABLE shop.readings_top (LIKE shop.readings);"
            " INSERT INTO shop.readings_top"
            " VALUES (21, '2024-01-01', 1, 't'), (22, NULL, NULL, 't');"
            " ALTER TABLE shop.readings ATTACH PARTITION shop.readings_top"
            " FOR VALUES FROM (20) TO (30)"
        ),
        rebuilds=frozenset({"shop.readings"}),
    ),
    Step(
        "writes to the new partition",
        _sql(
            "INSERT INTO shop.readings_top VALUES (21, '2024-01-01', 2, 't')",
            "UPDATE shop.readings SET sensor = 22 WHERE sensor IN (1, 21)",
            "DELETE FROM shop.readings_top WHERE value IS NULL",
        ),
    ),
)
