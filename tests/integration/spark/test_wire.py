"""Every type there and back on both servers, and what has no exact form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from psycopg import sql

from headwater.algebra.schema import SqlType
from headwater.errors import InexactValue, UnsupportedQuery
from headwater.spark.copying import copy_in, copy_out, pin_wire_settings
from headwater.spark.wire import INTEGER, Wire, incoming, landing_type, outgoing, wire_of
from headwater.sql.type_catalog import TypeCatalog
from tests.servers import Server

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok', '', 'très "heureux", oui');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE DOMAIN label AS text;
CREATE DOMAIN amount AS numeric(10,2);
CREATE TYPE pair AS (a integer, "b c" text);
"""

# the text of an untyped constant for each value
VALUES: dict[str, tuple[str, ...]] = {
    "boolean": ("t", "f"),
    "smallint": ("-32768", "32767", "0"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "numeric(12,2)": ("9999999999.99", "-9999999999.99", "0.00", "-0.01", "1.5"),
    "numeric(38,0)": ("9" * 38, "-" + "9" * 38, "0"),
    "numeric(38,38)": ("0." + "9" * 38, "-0." + "0" * 37 + "1", "0"),
    "numeric(38,20)": ("1e-20", "0", "123456789012345678.5"),
    "numeric(39,0)": ("9" * 39, "NaN"),
    "numeric(5,-2)": ("1200", "-9999900"),
    "numeric(2,4)": ("0.0099",),
    "numeric": ("1.0", "1.00", "1", "NaN", "Infinity", "-Infinity", "1e-100", "1e300", "-0"),
    "text": (
        *("", " ", "  blanks  ", "NULL", "null", "\\N", "\\.", "\n\\.\n", "a\n\\.\nb", "\\", "\\n"),
        *('"', '""', "'", ",", "a,b", 'say "hi", twice', "line\nbreak", "cr\rlf\r\n", "\t", "\x01"),
        *("ünïcödé", "日本語", "🦀", "e\u0301", "\ufeffbom", "\u2028", "\x7f", "#", "t"),
        "x" * 100_000,
    ),
    "character varying(5)": ("abc  ", "", "ééééé"),
    "character(5)": ("ab", "", "abcde", " a"),
    "bpchar": ("ab  ", "ab", ""),
    '"char"': ("a", ""),
    "name": ("pg_class", ""),
    'text COLLATE "C"': ("a", "B", ""),
    "date": ("0001-01-01", "9999-12-31", "2024-02-29", "1582-10-10", "1969-12-31"),
    "timestamp": (
        *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-29 12:00:00.000001"),
        *("1900-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-03-31 02:30:00"),
    ),
    "timestamp(3)": ("2024-02-29 12:00:00.123",),
    "timestamptz": (
        *("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00", "2024-02-29 12:00:00.5+05:30"),
        *("2024-03-31 01:59:59 Europe/Berlin", "2024-03-31 03:00:00 Europe/Berlin"),
        *("2024-10-27 02:30:00 CEST", "2024-10-27 02:30:00 CET"),
        "1890-01-01 00:00 Europe/Amsterdam",
    ),
    "bytea": ("\\x" + bytes(range(256)).hex(), "\\x", "\\x00", "\\xff"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "FFFFFFFF-ffff-4fff-bfff-ffffffffffff"),
    "real": ("-0", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38", "0.1", "16777217"),
    "float8": ("-0", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308", "0.1"),
    "json": ('{ "b" :1,"a":  2, "a":3 }', "null", '"x\\u00e9\\n"', ' [1 ,\n 2] '),
    "jsonb": ('{ "b" :1.00,"a":  2, "a":3 }', "null", '"x\\u00e9"'),
    "interval": ("1 mon -1 day", "-00:00:00.000001", "178000000 years", "24:00:00", "1 day"),
    "time": ("00:00", "24:00", "12:34:56.789012"),
    "timetz": ("12:00+05:30", "12:00-15:59:59", "24:00+00"),
    "inet": ("192.168.0.1/24", "10.0.0.1", "::1", "::ffff:1.2.3.4/96"),
    "cidr": ("10.0.0.0/8", "::/0"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "money": ("-92233720368547758.08", "92233720368547758.07", "0.01", "1,234.50"),
    "bit(5)": ("10101",),
    "bit varying": ("", "101"),
    "oid": ("0", "4294967295"),
    "xid8": ("18446744073709551615",),
    "pg_lsn": ("16/B374D848",),
    "regtype": ("integer", "pg_catalog.int4[]"),
    "tsvector": ("'a':1A 'b c':2", ""),
    "tsquery": ("a & !'b c'",),
    "point": ("(0.1,-0)",),
    "polygon": ("((0,0),(1,0),(1,1))",),
    "xml": ("<a>é &amp; <b/></a>", "plain"),
    "integer[]": ("{1,NULL,-3}", "{}", "{{1,2},{3,4}}", "[0:1]={5,6}"),
    "text[]": ('{"",NULL,"NULL","a,b","q\\"q","back\\\\slash"}', "{}"),
    "timestamptz[]": ('{"2024-10-27 02:30:00+02",infinity,"0044-03-15 BC"}',),
    "bytea[]": ('{"\\\\x00ff"}',),
    "int4range": ("[1,5)", "empty", "(,)"),
    "tstzrange": ('["2024-01-01 00:00+00",)',),
    "nummultirange": ("{[1.0,2.00],(5,)}", "{}"),
    "public.mood": ("sad", "", 'très "heureux", oui'),
    "public.positive": ("1", "2147483647"),
    "public.label": ("", "a,b"),
    "public.amount": ("1.50", "NaN"),
    "public.pair": ('(1,"x, y")', "(,)", '(,"")'),
}  # fmt: skip
NATIVE = {
    *("boolean", "smallint", "integer", "bigint", "numeric(12,2)", "numeric(38,0)", "text", "date"),
    *("numeric(38,38)", "numeric(38,20)", "character varying(5)", "name", 'text COLLATE "C"'),
    *("timestamp", "timestamp(3)", "timestamptz", "bytea", "uuid"),
}


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[psycopg.Connection]:
    """A database for all tests here: with one for each they would take a minute."""
    dsn = server.create_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TYPES)
        yield connection
    server.drop_database(dsn)


@pytest.fixture
def conn(shared: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """The shared connection in a transaction that is rolled back."""
    with shared.transaction(force_rollback=True):
        yield shared


@pytest.fixture
def types(conn: psycopg.Connection) -> TypeCatalog:
    return TypeCatalog(conn)


def column_type(conn: psycopg.Connection, types: TypeCatalog, table: str) -> SqlType:
    """The type of column `v`, as capture asks for it."""
    row = conn.execute(
        "SELECT atttypid::int8, atttypmod, attcollation::int8 FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attname = 'v'",
        (table,),
    ).fetchone()
    assert row is not None
    with conn.transaction(force_rollback=True):
        conn.execute("SET LOCAL search_path = ''")
        return types.get(*row)


def fill(conn: psycopg.Connection, declared: str, values: Sequence[str | None]) -> None:
    conn.execute(sql.SQL(f"CREATE TABLE source (id integer, v {declared})"))
    bare = declared.partition(" COLLATE")[0]
    for i, value in enumerate(values):
        cast = sql.SQL(f"INSERT INTO source SELECT {{}}, CAST({{}} AS {bare})")
        conn.execute(cast.format(i, sql.Literal(value)))


def there_and_back(conn: psycopg.Connection, type: SqlType, wire: Wire) -> list[int]:
    """Send `source` through Arrow into `landing`; return the ids whose image changed."""
    columns = [("id", INTEGER), ("v", wire)]
    with conn.transaction():
        pin_wire_settings(conn)
        select = f"SELECT id, {outgoing('v', wire, type)} FROM source"
        batches = list(copy_out(conn, select, columns))
        conn.execute(sql.SQL(f"CREATE TABLE landing (id int, v {landing_type(wire, type)})"))
        copy_in(conn, "landing", columns, batches)
    differing = conn.execute(
        sql.SQL(
            "SELECT id FROM source s FULL JOIN landing l USING (id)"
            f" WHERE NOT record_image_eq(ROW(s.v), ROW({incoming('l.v', wire, type)}))"
            " OR (s.v IS NULL) <> (l.v IS NULL) OR s IS NULL OR l IS NULL"
        )
    )
    return [row[0] for row in differing]


@pytest.mark.parametrize("declared", VALUES)
def test_round_trip(conn: psycopg.Connection, types: TypeCatalog, declared: str) -> None:
    values = [None, *VALUES[declared], None]
    try:
        fill(conn, declared, values)
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server is built without XML")
    type = column_type(conn, types, "source")
    wire = wire_of(type)
    assert (wire.kind != "opaque") == (declared in NATIVE)
    assert [values[i] for i in there_and_back(conn, type, wire)] == []


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Amsterdam", "Asia/Kolkata"])
def test_natives_do_not_depend_on_the_time_zone(
    conn: psycopg.Connection, types: TypeCatalog, zone: str
) -> None:
    fill(conn, "timestamptz", VALUES["timestamptz"])
    type = column_type(conn, types, "source")
    wire = wire_of(type)
    conn.execute("SELECT set_config('TimeZone', %s, true)", (zone,))
    batches = list(copy_out(conn, f"SELECT {outgoing('v', wire, type)} FROM source", [("v", wire)]))
    conn.execute("CREATE TABLE landing (v timestamptz)")
    copy_in(conn, "landing", [("v", wire)], batches)
    lost = conn.execute("SELECT v FROM source EXCEPT ALL TABLE landing").fetchall()
    assert lost == []


@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        ("numeric(5,2)", "NaN", "NaN"),
        ("date", "infinity", "infinity"),
        ("date", "-infinity", "-infinity"),
        ("date", "0044-03-15 BC", "0044-03-15 BC"),
        ("date", "10000-01-01", "10000-01-01"),
        ("timestamp", "infinity", "infinity"),
        ("timestamp", "0001-12-31 23:59:59 BC", "0001-12-31 23:59:59 BC"),
        ("timestamp", "10000-01-01 00:00:00", "10000-01-01 00:00:00"),
        ("timestamptz", "-infinity", "-infinity"),
        ("timestamptz", "294276-12-31 23:59:59+00", "294276-12-31 23:59:59"),
        ("timestamptz", "0001-12-31 23:59:59+00 BC", "0001-12-31 23:59:59 BC"),
    ],
)
def test_what_has_no_exact_form(
    conn: psycopg.Connection, types: TypeCatalog, declared: str, value: str, shown: str
) -> None:
    good = next(iter(v for v in VALUES.get(declared, ("1.50",))))
    fill(conn, declared, [good, None, value, good])
    type = column_type(conn, types, "source")
    wire = wire_of(type)
    with pytest.raises(InexactValue) as caught:
        there_and_back(conn, type, wire)
    assert caught.value.what == f'column "v" holds {shown}, which {wire.spark} cannot hold exactly'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("1.5", "1.5 of scale 1"),
        ("1.500", "1.500 of scale 3"),
        ("1", "1 of scale 0"),
        ("1234.50", "1234.50"),
        ("Infinity", "Infinity"),
        ("NaN", "NaN"),
    ],
)
def test_numeric_must_have_the_scale_that_was_promised(
    conn: psycopg.Connection, types: TypeCatalog, value: str, shown: str
) -> None:
    fill(conn, "numeric", ["1.50", value])
    type = column_type(conn, types, "source")
    wire = wire_of(type, (5, 2))
    with pytest.raises(InexactValue) as caught:
        there_and_back(conn, type, wire)
    assert caught.value.what == f'column "v" holds {shown}, which DECIMAL(5,2) cannot hold exactly'


def test_numeric_of_a_known_scale(conn: psycopg.Connection, types: TypeCatalog) -> None:
    fill(conn, "numeric", [None, "0." + "0" * 20, "0." + "0" * 19 + "1", "5." + "0" * 20])
    type = column_type(conn, types, "source")
    wire = wire_of(type, (38, 20))
    assert wire == Wire("decimal", "DECIMAL(38,20)", comparable=True, ordered=True)
    assert there_and_back(conn, type, wire) == []


@pytest.mark.parametrize("declared", VALUES)
def test_equality_and_order_are_those_of_the_forms(
    conn: psycopg.Connection, types: TypeCatalog, declared: str
) -> None:
    """Python compares the forms as Spark does: numbers, and strings by code point."""
    values = VALUES[declared]
    try:
        fill(conn, declared, values)
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server is built without XML")
    type = column_type(conn, types, "source")
    wire = wire_of(type)
    with conn.transaction():
        pin_wire_settings(conn)
        select = f"SELECT {outgoing('v', wire, type)} FROM source ORDER BY id"
        forms = [row for b in copy_out(conn, select, [("v", wire)]) for row in b["v"].to_pylist()]
    pairs = "FROM source a CROSS JOIN source b"
    if wire.comparable:
        for a, b, same in conn.execute(f"SELECT a.id, b.id, a.v = b.v {pairs}"):
            assert (forms[a] == forms[b]) == same
    if wire.ordered:
        for a, b, less in conn.execute(f"SELECT a.id, b.id, a.v < b.v {pairs}"):
            assert (forms[a] < forms[b]) == less


def test_uuids_sort_as_their_text(conn: psycopg.Connection) -> None:
    query = (
        "WITH u AS (SELECT gen_random_uuid() AS v FROM generate_series(1, 5000)),"
        " n AS (SELECT row_number() OVER (ORDER BY v) AS a, row_number() OVER (ORDER BY v::text"
        ' COLLATE "C") AS b FROM u) SELECT count(*) FROM n WHERE a <> b'
    )
    assert conn.execute(query).fetchone() == (0,)


def test_bytea_sorts_by_unsigned_bytes_and_length(conn: psycopg.Connection) -> None:
    ordered = [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\x00\xff",
        b"\x01",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"\xff\x00",
    ]
    rows = conn.execute("SELECT v FROM unnest(%s::bytea[]) AS v ORDER BY v", (ordered[::-1],))
    assert [bytes(row[0]) for row in rows] == ordered == sorted(ordered)


@pytest.mark.parametrize(
    ("type", "comparable", "ordered"),
    [
        (SqlType("text", 'pg_catalog."default"'), True, False),
        (SqlType("text", 'pg_catalog."C"'), True, True),
        (SqlType("text", 'pg_catalog."POSIX"'), True, True),
        (SqlType("text", 'pg_catalog."en-x-icu"'), True, False),
        (SqlType("text"), True, False),
        (SqlType("text", "public.blind", is_image=False), False, False),
        (SqlType("public.citext", None, "OPERATOR(public.=)", is_image=False), False, False),
        (SqlType("public.mood"), True, False),
        (SqlType("character(3)", 'pg_catalog."C"'), False, False),
        (SqlType("double precision", is_image=False), False, False),
        (SqlType("json", equality=None, is_image=False), False, False),
        (SqlType("numeric(12,2)"), True, True),
        (SqlType("numeric(12,2)[]", is_image=False), False, False),
    ],
)  # fmt: skip
def test_what_spark_may_compare(type: SqlType, comparable: bool, ordered: bool) -> None:
    wire = wire_of(type)
    assert (wire.comparable, wire.ordered) == (comparable, ordered)


def test_anonymous_records_stay_at_home() -> None:
    with pytest.raises(UnsupportedQuery, match="record"):
        wire_of(SqlType("record", None, None, is_image=False))
