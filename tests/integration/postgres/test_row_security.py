"""Row-level security of sources: a stream table holds what its owner sees, whoever writes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import sql

import headwater
from headwater.errors import MissingRights, UnsupportedQuery
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE orders (id int, customer int, amount numeric, clerk text);
CREATE TABLE customers (id int PRIMARY KEY, name text);
INSERT INTO orders SELECT n, n % 4, nullif(n % 5, 0),
       CASE n % 3 WHEN 0 THEN current_user ELSE 'x' END FROM generate_series(1, 30) AS n;
INSERT INTO customers SELECT n, 'c' || n FROM generate_series(0, 3) AS n;
ALTER TABLE orders ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON orders FOR SELECT USING (clerk = current_user);
CREATE POLICY few ON orders USING (customer = 1);
CREATE POLICY known ON orders AS RESTRICTIVE USING (amount IS NOT NULL);
CREATE POLICY of_others ON orders TO pg_monitor USING (true);
CREATE POLICY writing ON orders FOR INSERT WITH CHECK (true);
"""
QUERIES = {
    "plain": "SELECT id, amount FROM orders",
    "totals": "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
    "joined": "SELECT c.name, o.id FROM customers c LEFT JOIN orders o ON o.customer = c.id",
    "twice": "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON b.customer = a.customer"
    " AND b.id > a.id WHERE NOT EXISTS (SELECT FROM orders WHERE amount > a.amount + 3)",
}
CHANGES = (
    "INSERT INTO orders VALUES (31, 1, 3, 'x'), (32, 2, 7, 'x')",
    "INSERT INTO orders VALUES (33, 2, NULL, '{me}'), (34, 2, 1, '{me}')",
    "UPDATE orders SET customer = 3 - customer WHERE id % 3 = 1",  # rows come into sight and go
    "UPDATE orders SET clerk = CASE clerk WHEN 'x' THEN '{me}' ELSE 'x' END WHERE id % 4 = 0",
    "UPDATE orders SET amount = CASE WHEN amount IS NULL THEN 2 END WHERE id % 5 < 2",
    "DELETE FROM orders WHERE id % 7 = 0",
    "UPDATE customers SET name = name || '!'",
    "TRUNCATE orders",
    "INSERT INTO orders SELECT n, n % 4, n, '{me}' FROM generate_series(1, 9) AS n",
)
FOLLOWING = ("IMMEDIATE", "COMMIT")  # without a refresh
MODES = ("DIFFERENTIAL", "FULL", *FOLLOWING)
POLICIES = (
    "ALTER POLICY few ON orders USING (customer = 2)",
    "CREATE POLICY more ON orders USING (id = 3)",
    "DROP POLICY known ON orders",
    "ALTER TABLE orders NO FORCE ROW LEVEL SECURITY",
    "ALTER TABLE orders FORCE ROW LEVEL SECURITY",
    "ALTER TABLE orders DISABLE ROW LEVEL SECURITY",
)


@dataclass
class World:
    """A role that the policies apply to, and a superuser who writes what it does not see."""

    hw: headwater.Headwater
    owner: Connection
    writer: Connection
    role: str

    def write(self, statement: str) -> None:
        self.writer.execute(statement.format(me=self.role).encode())

    def settle(self, action: str | None = None) -> None:
        """Refresh what is deferred, and compare all with what the owner sees."""
        for name, query in QUERIES.items():
            for mode in MODES:
                table = f"{name}_{mode.lower()}"
                if mode not in FOLLOWING:
                    done = self.hw.refresh_stream_table(table).action
                    assert mode == "FULL" or action in (None, done), (table, done)
                assert find_difference(self.owner, query, table) is None, table


@pytest.fixture
def world(database: str, conn: Connection) -> Iterator[World]:
    role = f"limited_{uuid.uuid4().hex[:8]}"
    conn.execute(f"CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role}".encode())
    conn.execute(f"GRANT CREATE ON DATABASE {conn.info.dbname} TO {role}".encode())
    dsn = database.replace("postgres@", f"{role}@")
    try:
        with psycopg.connect(dsn, autocommit=True) as owner, headwater.connect(dsn) as hw:
            owner.execute(SETUP.encode())
            yield World(hw, owner, conn, role)
    finally:
        conn.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())


@pytest.fixture
def tables(world: World) -> World:
    for name, query in QUERIES.items():
        for mode in MODES:
            world.hw.create_stream_table(f"{name}_{mode.lower()}", query, refresh_mode=mode)
    world.settle()
    return world


def test_tables_hold_what_their_owner_sees(tables: World) -> None:
    [(shown, stored)] = tables.writer.execute(
        "SELECT (SELECT count(*) FROM plain_immediate), (SELECT count(*) FROM orders)"
    ).fetchall()
    assert 0 < shown < stored  # the superuser sees all of them
    for statement in CHANGES:
        tables.write(statement)
        tables.settle(None if "customers" in statement else "DIFFERENTIAL")
        assert all(tables.hw.verify(f"{name}_immediate").equal for name in QUERIES)
    tables.owner.execute("UPDATE orders SET amount = 77 WHERE id = 1")
    tables.settle("DIFFERENTIAL")


@pytest.mark.costly
def test_altered_policies_rebuild_what_they_concern(tables: World) -> None:
    for statement in POLICIES:
        tables.owner.execute(statement.encode())
        tables.write("UPDATE orders SET amount = coalesce(amount, 0) + 1")  # no writer fails
        for name, mode in product(QUERIES, FOLLOWING):
            tables.hw.refresh_stream_table(f"{name}_{mode.lower()}")
        tables.settle()
        tables.write("UPDATE orders SET customer = (customer + 1) % 4")
        tables.settle("DIFFERENTIAL")


@pytest.mark.costly
def test_who_refreshes_makes_no_difference(tables: World) -> None:
    """The plan is that of the owner, also if a superuser has it compiled again."""
    with headwater.connect(tables.hw.dsn.replace(tables.role, "postgres")) as hw:
        for statement in POLICIES[:3]:
            tables.owner.execute(statement.encode())
            tables.write("UPDATE orders SET amount = coalesce(amount, 0) + 1")
            for name, mode in product(QUERIES, MODES):
                hw.refresh_stream_table(f"{name}_{mode.lower()}")
            tables.settle()
            tables.write("UPDATE orders SET customer = (customer + 1) % 4")
            tables.settle("DIFFERENTIAL")


def test_what_policies_cannot_be_followed(world: World) -> None:
    world.owner.execute("CREATE VIEW shown AS SELECT * FROM orders")
    for query, condition, told in (
        ("SELECT id FROM shown", "true", "rights of its own owner"),
        ("SELECT id FROM orders", "id IN (SELECT id FROM customers)", "by other tables"),
        ("SELECT id FROM orders", "now() > '2000-01-01'", "as time passes"),
        ("SELECT id FROM orders", "current_setting('app.me') = clerk", "STABLE"),
    ):
        world.owner.execute(f"ALTER POLICY few ON orders USING ({condition})".encode())
        for mode in ("DIFFERENTIAL", "IMMEDIATE"):
            with pytest.raises(UnsupportedQuery) as refused:
                world.hw.create_stream_table("st", query, refresh_mode=mode)
            assert told in str(refused.value)
    world.owner.execute("ALTER POLICY few ON orders USING (id IN (SELECT id FROM customers))")
    world.hw.create_stream_table("st", "SELECT id FROM orders", refresh_mode="FULL")
    world.write("UPDATE orders SET id = id + 1")
    world.hw.refresh_stream_table("st")
    assert find_difference(world.owner, "SELECT id FROM orders", "st") is None


def test_who_sees_all_is_not_concerned(world: World) -> None:
    with headwater.connect(world.hw.dsn.replace(world.role, "postgres")) as hw:
        hw.create_stream_table("st", QUERIES["plain"], refresh_mode="DIFFERENTIAL")
        world.owner.execute("DROP POLICY few ON orders")
        world.write("DELETE FROM orders WHERE id = 2")
        assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(world.writer, QUERIES["plain"], "st") is None


def test_who_is_given_a_table_sees_it_in_the_old_owners_place(world: World) -> None:
    role = sql.Identifier(world.role)
    world.writer.execute(sql.SQL("GRANT SELECT ON orders, customers TO {}").format(role))
    with headwater.connect(world.hw.dsn.replace(f"{world.role}@", "postgres@")) as hw:
        for mode in MODES:
            made = f"totals_{mode.lower()}"
            hw.create_stream_table(made, QUERIES["totals"], refresh_mode=mode)
            assert find_difference(world.writer, QUERIES["totals"], made) is None, mode
            given = sql.SQL("ALTER TABLE {} OWNER TO {}").format(sql.Identifier(made), role)
            world.writer.execute(given)
            world.write(CHANGES[0])
            if mode in FOLLOWING:
                [(status, why)] = world.writer.execute(
                    "SELECT status, last_error FROM pgtrickle.pgt_stream_tables"
                    " WHERE pgt_name = %s", [made]
                ).fetchall()  # fmt: skip
                assert (status, why) == ("ERROR", f"public.{made} has another owner than it had")
            hw.refresh_stream_table(made)
            assert find_difference(world.owner, QUERIES["totals"], made) is None, mode
            world.write(CHANGES[1])
            world.write(CHANGES[3])
            if mode not in FOLLOWING:
                hw.refresh_stream_table(made)
            assert find_difference(world.owner, QUERIES["totals"], made) is None, mode
    owned = world.writer.execute(
        "SELECT DISTINCT proowner::regrole::text FROM pg_proc"
        " WHERE pronamespace = 'pgtrickle_state'::regnamespace AND proname ~ '^follow_'"
    ).fetchall()
    assert owned == [(world.role,)]


def test_sources_of_others_are_refused_with_a_reason(world: World) -> None:
    world.writer.execute(
        "CREATE TABLE foreign_orders (id int); GRANT ALL ON foreign_orders TO PUBLIC"
    )
    with pytest.raises(MissingRights, match="must be owner of table foreign_orders"):
        world.hw.create_stream_table("st", "SELECT id FROM foreign_orders")
    assert world.hw.pgt_status() == ()
