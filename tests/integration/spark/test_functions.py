"""Every entry of the whitelist on awkward values: Spark and PostgreSQL agree, or both raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import sql as pg
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.algebra.expr import Expr
from headwater.algebra.ops import Aggregate, Op, Project, Scan, schema
from headwater.algebra.schema import Column, SqlType
from headwater.algebra.walk import walk
from headwater.postgres.describe import Described
from headwater.spark.functions import CONDITIONALS, ENTRIES, WHITELIST
from headwater.spark.literals import literal_sql, string_sql
from headwater.spark.translate import Refused, Translated, translate
from headwater.spark.wire import Wire, wire_of
from headwater.sql.analyse import analyse
from headwater.sql.lower import lower
from tests.integration.spark.samples import (
    NESTED,
    REFUSED,
    TYPES,
    VALUES,
    Sample,
    conditional_samples,
    samples,
)
from tests.scale import scaled
from tests.servers import Server

Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[Any, ...]
KIND_OF_TYPE = {type: kind for kind, type in TYPES.items()}
SERVER_NAMES = {
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "string": "text",
    "binary": "bytea",
}
# Times as numbers, since both may be beyond the years that Python knows; decimals as text, since
# pyspark hands over 1E-7 as 1.00E-7.
_MICROSECONDS = "(extract(epoch FROM {}) * 1000000)::bigint"
SHOWN = {
    "decimal": ("({})::text", "CAST({} AS STRING)"),
    "date": ("({}) - '1970-01-01'::date", "unix_date({})"),
    "timestamp": (_MICROSECONDS, "unix_micros({})"),
    "timestamp_ntz": (_MICROSECONDS, "unix_micros(CAST({} AS TIMESTAMP))"),
}
SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s');
CREATE TYPE pair AS (x int, y int);
CREATE FUNCTION twice(value int) RETURNS int LANGUAGE sql IMMUTABLE RETURN value * 2;
CREATE OPERATOR @+@ (LEFTARG = int, RIGHTARG = int, FUNCTION = pg_catalog.int4pl);
CREATE FUNCTION succeeds(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE ignored text;
BEGIN EXECUTE query INTO ignored; RETURN true;
EXCEPTION WHEN data_exception THEN RETURN false;
END $$;
"""


@pytest.fixture(scope="module")
def database(pg18: Server) -> Iterator[str]:
    dsn = pg18.create_database()
    yield dsn
    pg18.drop_database(dsn)


@pytest.fixture(scope="module")
def conn(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(SETUP)
        yield connection


@dataclass(frozen=True)
class Case:
    """A sample over a table, its canonical form, and its type."""

    sample: Sample
    expr: Expr
    column: Column
    wires: dict[str, Wire]
    made: Translated


@dataclass(frozen=True)
class Table:
    """The product of the values of some types, in both engines."""

    name: str
    types: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def columns(self) -> list[str]:
        return [*("a", "b")[: len(self.types)], *(["v"] if self.has_varchar else [])]

    @property
    def has_varchar(self) -> bool:
        return len(self.types) == 1

    @property
    def all_types(self) -> list[str]:
        varchar = [self.types[0].replace("text ", "varchar ")] if self.has_varchar else []
        return [*self.types, *varchar]


def test_every_entry_has_samples() -> None:
    assert [entry.key for entry in ENTRIES if not samples(entry)] == []
    assert [form for form in CONDITIONALS if not conditional_samples(form)] == []
    assert len({entry.key for entry in ENTRIES}) == len(ENTRIES)


def test_no_sample_passes_without_its_entry(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may print a cast that makes another entry apply; then this one is not tested."""
    found = {}
    for types, group in grouped(all_samples()).items():
        cases = translated(conn, make_table(conn, types), group)
        found.update({case.sample: case for case in cases})
    passing = []
    for entry in ENTRIES:
        cases = [found[sample] for sample in samples(entry) if sample in found]
        with monkeypatch.context() as patched:
            patched.delitem(WHITELIST, entry.key)
            made = [translate(case.expr, case.wires, quoted) for case in cases]
        if not any(isinstance(m, Refused) for m in made):
            passing.append(entry.key)
    assert passing == []


@pytest.mark.generated  # so that `make generated` tries more rows on which both raise
def test_spark_computes_what_postgres_computes(conn: Connection, spark: SparkSession) -> None:
    faults: list[str] = []
    for types, group in grouped(all_samples()).items():
        table = make_table(conn, types)
        cases = translated(conn, table, group)
        faults += compared(conn, spark, table, cases)
    assert faults == []


def test_the_comparison_finds_a_wrong_form(conn: Connection, spark: SparkSession) -> None:
    table = make_table(conn, ("integer", "integer"))
    wrong = translated(conn, table, [Sample(table.types, "a + b")])[0]
    forms = {
        "IF(`a` = 7, `b`, `a` + `b`)": "a + b on",
        "CAST(`a` + `b` AS BIGINT)": "type BIGINT",
        "try_add(`a`, `b`)": "does not raise",
    }
    for form, fault in forms.items():
        case = replace(wrong, made=Translated(form, wrong.made.wire))
        assert fault in " ".join(compared(conn, spark, table, [case]))


@pytest.mark.parametrize(("sql", "reason"), REFUSED)
def test_what_is_not_proven_is_refused(conn: Connection, sql: str, reason: str) -> None:
    conn.execute(
        "CREATE TABLE IF NOT EXISTS public.wide (a int, n numeric(12,2), m numeric, r float8,"
        " w numeric(38,0),"
        " t text, u text, c char(3), d date, s timestamp, z timestamptz, e mood, f mood,"
        " p pair, j jsonb)"
    )
    expr, _, scan = lowered(conn, f"SELECT {sql} AS x FROM public.wide")[0]
    made = translate(expr, wires(scan), quoted)
    assert isinstance(made, Refused)
    assert reason in made.reason


def test_sums_across_sources_are_translated(conn: Connection) -> None:
    """What lowering itself writes below an aggregate is in the whitelist."""
    conn.execute("CREATE TABLE IF NOT EXISTS x (k int, n numeric(10,2), c mood)")
    conn.execute("CREATE TABLE IF NOT EXISTS y (k int, n numeric(8,3), b bigint)")
    query = (
        "SELECT x.k, sum(x.n * (1 - y.n)) AS s, avg(x.n + y.n) FILTER (WHERE x.n > y.n),"
        " count(x.c),"
        " sum(y.b + x.k) AS t, min(x.k) FROM x JOIN y ON x.k = y.k GROUP BY x.k"
    )
    with conn.transaction():
        op = lower(analyse(conn, query), Described(conn))
    (grouped,) = (op for op in walk(op) if isinstance(op, Aggregate))
    assert isinstance(grouped.input, Project)
    known = {c.name: wire_of(c.type) for c in schema(grouped.input.input)}
    made = [translate(output.expr, known, quoted) for output in grouped.input.outputs]
    assert [m.reason for m in made if isinstance(m, Refused)] == []
    kinds = [m.wire.spark for m in made if isinstance(m, Translated)]
    assert "DECIMAL(19,5)" in kinds  # 10 + 9 digits, 2 + 3 after the point


def test_literals_are_read_back_as_they_were(spark: SparkSession) -> None:
    texts = [*VALUES["string"], "\\'", "'\\", "\\u0041", "\\n", "a\r\nb", "\x01\x1f\x7f", "\\%\\_"]
    selected = ", ".join(f"{string_sql(text)} AS c{i}" for i, text in enumerate(texts))
    (row,) = spark.sql(f"SELECT {selected}").collect()
    assert list(row) == texts


def test_equality_of_two_types_without_a_cast_is_known(conn: Connection) -> None:
    """Opaque forms are compared by text, so no `=` may take two types that travel opaque."""
    found = conn.execute(
        "SELECT oprleft::regtype::text, oprright::regtype::text FROM pg_operator"
        " WHERE oprname = '=' AND oprleft <> oprright"
    ).fetchall()
    native = {
        *("smallint", "integer", "bigint", "real", "double precision", "date", "name", "text"),
        *("timestamp without time zone", "timestamp with time zone"),
    }
    # xid is compared with integer: its wire is opaque, but integer's is not
    assert {pair for pair in found if not set(pair) <= native} == {("xid", "integer")}


# --- samples ---


def all_samples() -> Iterator[Sample]:
    for entry in ENTRIES:
        yield from samples(entry)
    for form in CONDITIONALS:
        yield from conditional_samples(form)
    yield from NESTED


def grouped(all: Iterable[Sample]) -> dict[tuple[str, ...], list[Sample]]:
    groups: dict[tuple[str, ...], list[Sample]] = {}
    for sample in dict.fromkeys(all):
        if "v::" in sample.sql and sample.types != (TYPES["string"],):
            continue  # only text has a varchar beside it
        if sample.sql == "a::text" and sample.types == (TYPES["string"],):
            continue  # the server drops a cast of text to text
        groups.setdefault(sample.types, []).append(sample)
    return groups


def make_table(conn: Connection, types: tuple[str, ...]) -> Table:
    """Create the table of all combinations of values, NULL among them."""
    name = pg.Identifier("t " + " ".join(types))
    values = [(None, *VALUES[KIND_OF_TYPE.get(type, type)]) for type in types]
    rows = [(n, *row) for n, row in enumerate(product(*values))]
    table = Table(name.as_string(conn), types, ())
    if table.has_varchar:
        rows = [(*row, row[1]) for row in rows]
    columns = ", ".join(f"{c} {t}" for c, t in zip(table.columns, table.all_types, strict=True))
    conn.execute(pg.SQL(f"DROP TABLE IF EXISTS {table.name}"))
    conn.execute(pg.SQL(f"CREATE TABLE {table.name} (n int, {columns})"))
    with conn.cursor() as cursor:
        marks = ", ".join(["%s"] * len(rows[0]))
        cursor.executemany(pg.SQL(f"INSERT INTO {table.name} VALUES ({marks})"), rows)
    return Table(table.name, types, tuple(rows))


def translated(conn: Connection, table: Table, group: Sequence[Sample]) -> list[Case]:
    """Have the server print the samples in canonical form, and translate them."""
    targets = ", ".join(f"{sample.sql} AS c{i}" for i, sample in enumerate(group))
    made = []
    found = lowered(conn, f"SELECT {targets} FROM {table.name}")
    for sample, (expr, column, scan) in zip(group, found, strict=True):
        result = translate(expr, wires(scan), quoted)
        assert isinstance(result, Translated), (sample, expr, result)
        made.append(Case(sample, expr, column, wires(scan), result))
    return made


def lowered(conn: Connection, query: str) -> list[tuple[Expr, Column, Scan]]:
    with conn.transaction():
        op: Op = lower(analyse(conn, query), Described(conn))
    assert isinstance(op, Project)
    assert isinstance(op.input, Project)
    assert isinstance(op.input.input, Scan)
    return [(o.expr, o.column, op.input.input) for o in op.input.outputs]


def wires(scan: Scan) -> dict[str, Wire]:
    return {column.name: wire_of(column.type) for column in scan.columns}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- the comparison ---


def compared(
    conn: Connection, spark: SparkSession, table: Table, cases: Sequence[Case]
) -> list[str]:
    spark.sql(spark_table(table)).createOrReplaceTempView("samples")
    faults = [fault for case in cases for fault in type_faults(case)]
    good = [succeeding(conn, table, case) for case in cases]
    faults += spark_type_faults(spark, cases)
    actual = spark_values(spark, table, cases, good)
    for case, rows, values in zip(cases, good, actual, strict=True):
        right = postgres_values(conn, table, case, rows)
        wrong = [n for n in rows if not same(right[n], values[n])]
        if wrong:
            shown = [(table.rows[n][1:], right[n], values[n]) for n in wrong[:5]]
            faults.append(f"{case.sample.sql} on {table.types}: {shown}")
        raising = [n for n in range(len(table.rows)) if n not in right]
        faults += does_not_raise(spark, table, case, raising)
    return faults


def type_faults(case: Case) -> Iterator[str]:
    """The kind must be that of PostgreSQL's type; a numeric's shape is checked by its values."""
    kind, name = case.made.wire.kind, case.column.type.name
    ours = "decimal" if name.startswith("numeric") else wire_of(case.column.type).kind
    if kind != ours:
        yield f"{case.sample}: kind {kind}, where PostgreSQL's type is {name}"


def succeeding(conn: Connection, table: Table, case: Case) -> list[int]:
    """Return the numbers of the rows on which PostgreSQL does not raise."""
    all_rows = [row[0] for row in table.rows]
    query = f"SELECT count(x) FROM (SELECT {case.sample.sql} AS x FROM {table.name} OFFSET 0) AS q"
    if conn.execute(pg.SQL("SELECT succeeds({})").format(pg.Literal(query))).fetchone() == (True,):
        return all_rows
    one = f"SELECT {case.sample.sql} FROM {table.name} WHERE n = "
    rows = conn.execute(
        pg.SQL("SELECT n FROM {} WHERE succeeds({} || n) ORDER BY n").format(
            pg.SQL(table.name), pg.Literal(one)
        )
    ).fetchall()
    return [n for (n,) in rows]


def postgres_values(conn: Connection, table: Table, case: Case, rows: list[int]) -> dict[int, Any]:
    value = SHOWN.get(case.made.wire.kind, ("{}", ""))[0].format(case.sample.sql)
    numbers = ", ".join(map(str, rows))
    query = f"SELECT n, {value} FROM {table.name} WHERE n = ANY ('{{{numbers}}}')"
    return dict(conn.execute(pg.SQL(query)).fetchall())


def spark_values(
    spark: SparkSession, table: Table, cases: Sequence[Case], good: Sequence[list[int]]
) -> list[dict[int, Any]]:
    """Evaluate all cases in one statement, each on the rows on which PostgreSQL does not raise."""
    selected = ["n"]
    for i, (case, rows) in enumerate(zip(cases, good, strict=True)):
        value = SHOWN.get(case.made.wire.kind, ("", "{}"))[1].format(case.made.sql)
        if len(rows) < len(table.rows):
            value = f"CASE WHEN n IN ({', '.join(map(str, rows)) or 'NULL'}) THEN {value} END"
        selected.append(f"{value} AS c{i}")
    found = spark.sql(f"SELECT {', '.join(selected)} FROM samples").collect()
    return [{row[0]: row[i + 1] for row in found} for i in range(len(cases))]


def spark_type_faults(spark: SparkSession, cases: Sequence[Case]) -> list[str]:
    """The type in Spark must be the one that the translation promises."""
    selected = ", ".join(f"{case.made.sql} AS c{i}" for i, case in enumerate(cases))
    fields = spark.sql(f"SELECT {selected} FROM samples").schema.fields
    found = [field.dataType.simpleString().upper() for field in fields]
    return [
        f"{case.sample}: type {type}, not {case.made.wire.spark}"
        for case, type in zip(cases, found, strict=True)
        if type != case.made.wire.spark
    ]


def spark_table(table: Table) -> str:
    """Return a SELECT of the rows; `repartition` keeps the optimizer from folding it away."""
    rows = ", ".join(f"({', '.join(spark_row(table, row))})" for row in table.rows)
    return f"SELECT /*+ REPARTITION(1) */ * FROM VALUES {rows} AS q(n, {', '.join(table.columns)})"


def spark_row(table: Table, row: Row) -> list[str]:
    return [str(row[0]), *map(spark_literal, row[1:], table.all_types)]


def spark_literal(text: str | None, type: str) -> str:
    """Return a value as the ingest would have stored it."""
    kind = KIND_OF_TYPE.get(type.replace("varchar ", "text "), "decimal")
    if kind == "decimal":
        value = "NULL" if text is None else repr(text)
        return f"CAST({value} AS {type.replace('numeric', 'DECIMAL')})"
    if kind == "opaque":
        return "CAST(NULL AS STRING)" if text is None else string_sql(text)
    sql = literal_sql(text, wire_of(SqlType(SERVER_NAMES.get(kind, kind))))
    assert sql is not None
    return sql


def does_not_raise(
    spark: SparkSession, table: Table, case: Case, raising: Sequence[int]
) -> Iterator[str]:
    """Evaluate, row by row, what raises in PostgreSQL; of many rows, some from all over."""
    for n in raising[:: 1 + len(raising) // scaled(2)]:
        values = zip(spark_row(table, table.rows[n]), ["n", *table.columns], strict=True)
        row = ", ".join(f"{value} AS {name}" for value, name in values)
        try:
            found = spark.sql(f"SELECT {case.made.sql} AS x FROM (SELECT {row})").collect()
        except PySparkException:
            continue
        yield f"{case.sample.sql} on {table.rows[n][1:]} does not raise in Spark: {found}"


def same(right: Any, found: Any) -> bool:
    """Tell whether two values are the same."""
    if isinstance(right, bytes):
        found = bytes(found) if isinstance(found, bytearray) else found
    return type(right) is type(found) and bool(right == found)
