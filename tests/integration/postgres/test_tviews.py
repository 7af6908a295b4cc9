"""Tviews: the tutorial as it is written, the conventions, and what is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import headwater
from headwater.cli import main
from headwater.database.serve import serve_waiting, serving
from headwater.errors import (
    AlreadyExists,
    DependencyCycle,
    DependentsExist,
    InvalidArgument,
    NotFound,
    UnsupportedQuery,
)

Connection = psycopg.Connection[Any]
PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "documents.md").read_text(encoding="utf-8")
SETUP, STORY, READING = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
[PYTHON] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ENTITIES = ("company", "user", "post", "feed")
NOTING = """
CREATE TABLE written (entity text, op text, pk bigint, n serial);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.written (entity, op, pk) VALUES (TG_ARGV[0], TG_OP,
        (coalesce(to_jsonb(new), to_jsonb(old)) ->> ('pk_' || TG_ARGV[0]))::bigint);
    RETURN NULL;
END $$;
"""


@pytest.fixture
def hw(conn: Connection, database: str) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP.encode())
    with headwater.connect(database) as made:
        exec(PYTHON, {"hw": made})
        conn.execute(NOTING.encode())
        for entity in ENTITIES:
            conn.execute(
                f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON tv_{entity}"
                f" FOR EACH ROW EXECUTE FUNCTION note('{entity}')".encode()
            )
        yield made


def wrong(conn: Connection) -> dict[str, object]:
    """The entities whose documents are not those of their view."""
    found = dict[str, list[object]]()
    for entity in ENTITIES:
        [(columns,)] = conn.execute(
            "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0",
            [f"v_{entity}"],
        ).fetchall()
        both = [f"SELECT {columns} FROM {prefix}_{entity}" for prefix in ("v", "tv")]
        for a, b in (both, both[::-1]):
            rows = conn.execute(f"{a} EXCEPT ALL {b}".encode()).fetchall()
            found.setdefault(entity, []).extend(rows)
    return {entity: rows for entity, rows in found.items() if rows}


def written(conn: Connection) -> Counter[str]:
    """What was written since the last look, in the order of levels."""
    rows = conn.execute("SELECT entity, op FROM written ORDER BY n").fetchall()
    order = [ENTITIES.index(entity) for entity, _ in rows]
    assert order == sorted(order)
    conn.execute("TRUNCATE written")
    return Counter(f"{entity} {op}" for entity, op in rows)


def test_the_tutorial(hw: headwater.Headwater, conn: Connection) -> None:
    counts = []
    for statement in filter(str.strip, re.sub(r"--.*", "", STORY).split(";")):
        conn.execute(statement.encode())
        if conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            assert wrong(conn) == {}, statement
            counts.append(written(conn))
    assert counts == [
        {"company INSERT": 2},
        {"user INSERT": 3},
        {"feed INSERT": 1},
        {"user UPDATE": 1, "post INSERT": 100, "feed UPDATE": 1},
        {"user UPDATE": 2, "post UPDATE": 100, "feed UPDATE": 1},
        {"company UPDATE": 1, "user UPDATE": 2, "post UPDATE": 99, "feed UPDATE": 1},
    ]
    [(levels,)] = conn.execute(
        "SELECT array_agg(entity || ' ' || level || ' ' || array_to_string(embeds, '+')"
        " ORDER BY level) FROM pgtrickle.tviews"
    ).fetchall()
    assert levels == ["company 0 ", "user 1 company", "post 2 user", "feed 3 post"]
    assert all(hw.verify(f"tv_{entity}").equal for entity in ENTITIES)
    conn.execute(re.sub(r"--.*", "", READING).encode())


def test_documents_change_once_and_say_when(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("INSERT INTO tb_company (pk_company, name) VALUES (1, 'a'), (2, 'b')")
    conn.execute(
        "INSERT INTO tb_user (pk_user, name, fk_company) SELECT n, 'u', 1"
        " FROM generate_series(1, 3) AS n"
    )
    written(conn)
    [(before,)] = conn.execute("SELECT max(updated_at) FROM tv_user").fetchall()
    with conn.transaction():
        for n in range(10):
            conn.execute("UPDATE tb_user SET name = %s, fk_company = 2 WHERE pk_user = 1", [str(n)])
            conn.execute("UPDATE tb_user SET name = name WHERE pk_user = 2")
    assert written(conn) == {"user UPDATE": 1}
    changed = "SELECT pk_user, fk_company FROM tv_user WHERE updated_at > %s"
    assert conn.execute(changed, [before]).fetchall() == [(1, 2)]
    conn.execute("DELETE FROM tb_user WHERE pk_user = 1")
    assert written(conn) == {"user DELETE": 1}
    conn.execute("UPDATE tb_company SET name = name || '!'")  # none is left in the second
    assert written(conn) == {"company UPDATE": 2, "user UPDATE": 2}
    assert wrong(conn) == {}


def test_other_names_and_keys(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE words (lang text, word text, meaning text, PRIMARY KEY (lang, word));"
        "CREATE TABLE things (ref uuid PRIMARY KEY, fk_word text, lang text);"
        "CREATE VIEW shown AS SELECT ref, fk_word, jsonb_build_object('r', ref) AS doc FROM things"
    )
    made = hw.create_tview(
        "dictionary",
        "SELECT lang, word, jsonb_build_object('means', meaning) AS entry FROM words",
        key=("lang", "word"),
        data="entry",
        view="definitions",
    )
    assert made.key_columns == ("lang", "word")
    arguments = ["--dsn", hw.dsn, "create-tview", "tv_thing", "--key", "ref"]
    done = CliRunner().invoke(main, [*arguments, "--data", "doc", "--view", "shown", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["effective_mode"] == "COMMIT"
    conn.execute("INSERT INTO words VALUES ('en', 'a', 'one'), ('de', 'a', 'ah')")
    conn.execute("INSERT INTO things VALUES (gen_random_uuid(), 'a', 'en')")
    conn.execute("UPDATE words SET lang = 'fr' WHERE lang = 'de'")
    assert all(hw.verify(name).equal for name in ("dictionary", "tv_thing"))
    rows = conn.execute("SELECT entity, view::text, key_columns, link_columns FROM pgtrickle.tviews"
                        " WHERE data_column <> 'data' ORDER BY 1").fetchall()  # fmt: skip
    assert rows == [
        ("dictionary", "definitions", ["lang", "word"], []),
        ("thing", "shown", ["ref"], ["fk_word"]),
    ]
    hw.drop_stream_table("dictionary")
    hw.drop_stream_table("tv_thing")
    [(left,)] = conn.execute("SELECT to_regclass('definitions') IS NULL").fetchall()
    assert left
    conn.execute("TABLE shown")  # it was there before


def test_a_view_that_is_replaced(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("INSERT INTO tb_company (pk_company, name) VALUES (1, 'a')")
    conn.execute(
        "CREATE OR REPLACE VIEW v_company AS SELECT pk_company, id,"
        " jsonb_build_object('id', id, 'name', upper(name)) AS data FROM tb_company"
    )
    hw.refresh_stream_table("tv_company")
    shown = "SELECT data ->> 'name', updated_at IS NOT NULL FROM tv_company"
    assert conn.execute(shown.encode()).fetchall() == [("A", True)]
    conn.execute("UPDATE tb_company SET name = 'b'")
    assert conn.execute("SELECT data ->> 'name' FROM tv_company").fetchall() == [("B",)]
    with pytest.raises(DependencyCycle):
        hw.alter_stream_table(
            "tv_company", query="SELECT pk_user AS pk_company, id, data FROM tv_user"
        )
    with pytest.raises(DependentsExist):
        hw.drop_stream_table("tv_company")
    conn.execute(
        "CREATE OR REPLACE VIEW v_company AS SELECT pk_company, id, (SELECT jsonb_agg(u.data)"
        " FROM tv_user u WHERE u.fk_company = pk_company) AS data FROM tb_company"
    )
    with pytest.raises(DependencyCycle, match=r"tv_company → public\.tv_user → public\.tv_company"):
        hw.refresh_stream_table("tv_company")
    [status] = [s for s in hw.pgt_status() if s.name == "public.tv_company"]
    assert status.status == "ERROR"


REFUSED = (
    ("SELECT pk_user AS pk, '{}'::jsonb AS data FROM tb_user", InvalidArgument, "pk_x"),
    ("SELECT pk_user AS pk_x, name AS data FROM tb_user", InvalidArgument, "jsonb"),
    ("SELECT fk_user AS pk_x, '{}'::jsonb AS data FROM tb_post", UnsupportedQuery, "unique"),
    (
        "SELECT pk_user AS pk_x, jsonb_build_object('of', (SELECT count(*) FROM tb_user)) AS data"
        " FROM tb_user",
        UnsupportedQuery,
        "nothing links",
    ),
    (None, NotFound, "no view"),
)
KNOWN = "SELECT pk_company, id, '{}'::jsonb AS data FROM tb_company"


def test_what_is_no_document(hw: headwater.Headwater, conn: Connection) -> None:
    for query, error, told in REFUSED:
        with pytest.raises(error, match=told):
            hw.create_tview("tv_x", query)
        left = conn.execute("SELECT to_regclass('tv_x'), to_regclass('v_x')").fetchall()
        assert left == [(None, None)]
    for name, view in (("tv_company", None), ("tv_other", "v_company")):
        with pytest.raises(AlreadyExists, match="exists already"):
            hw.create_tview(name, KNOWN, view=view)
    assert hw.verify("tv_company").equal


def test_from_sql(inside: str) -> None:
    """In the server, in the caller's transaction: made, written, flushed and rolled back."""
    with psycopg.connect(inside, autocommit=True) as conn:
        conn.execute(SETUP.encode())
        with conn.transaction():
            query = (
                "SELECT pk_company, id, jsonb_build_object('name', name) AS data FROM tb_company"
            )
            conn.execute("SELECT pgtrickle.create_tview('tv_company', %s)", [query])
            conn.execute("INSERT INTO tb_company (pk_company, name) VALUES (1, 'a')")
            conn.execute("SELECT pgtrickle.flush_commit()")
            assert conn.execute("SELECT data FROM tv_company").fetchall() == [({"name": "a"},)]
            conn.execute("UPDATE tb_company SET name = 'b'")
            conn.execute("SELECT pgtrickle.refresh_stream_table('tv_company')")
            assert conn.execute("SELECT data FROM tv_company").fetchall() == [({"name": "b"},)]
            conn.execute("UPDATE tb_company SET name = 'c'")
        assert conn.execute("SELECT data FROM tv_company").fetchall() == [({"name": "c"},)]
        conn.execute("SELECT pgtrickle.drop_stream_table('tv_company')")


def test_documents_that_the_catalog_lost(hw: headwater.Headwater, conn: Connection) -> None:
    """No write is lost in silence: it fails until what follows it is gone."""
    conn.execute("DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'tv_feed'")
    with psycopg.connect(hw.dsn, autocommit=True) as other:
        with pytest.raises(psycopg.Error, match="catalog does not know") as caught:
            other.execute("INSERT INTO tb_feed (pk_feed, name) VALUES (1, 'f')")
        assert "doctor" in str(caught.value.diag.message_hint)
        hw.doctor(fix=True)
        other.execute("INSERT INTO tb_feed (pk_feed, name) VALUES (1, 'f')")


COMPANY = "SELECT pk_company, jsonb_build_object('name', name) AS data FROM tb_company"


def test_a_table_that_is_created_as_one(inside: str) -> None:
    """CREATE TABLE tv_x AS SELECT … makes a tview, all of it or nothing; others it lets be."""
    with psycopg.connect(inside, autocommit=True) as conn:
        conn.execute(SETUP.encode())
        conn.execute(f"CREATE TABLE tv_plain AS {COMPANY}".encode())
        conn.execute("CREATE SCHEMA own; SET search_path = own, public")
        conn.execute("SET pg_trickle.create_table_as = on")
        for statement in (
            f"CREATE TABLE others AS {COMPANY}",
            f"CREATE TEMPORARY TABLE tv_company AS {COMPANY}",
            f"CREATE TABLE IF NOT EXISTS public.tv_plain AS {COMPANY}",
        ):
            conn.execute(statement.encode())
        assert conn.execute("SELECT entity FROM pgtrickle.tviews").fetchall() == []
        conn.execute("DROP TABLE tv_company")
        for statement, error in (
            ("CREATE TABLE tv_company AS SELECT pk_company FROM tb_company", "HW-10"),
            (f"CREATE TABLE tv_company AS {COMPANY} WHERE name <> ';'", "cannot become a tview"),
            (
                f"CREATE TABLE tv_company WITH (fillfactor = 50) AS {COMPANY}",
                "statement of its own",
            ),
            (
                "DO 'BEGIN CREATE TABLE tv_company AS TABLE tb_company; END'",
                "statement of its own",
            ),
            ("CREATE TABLE tv_company AS SELECT 1 / 0 AS pk_company", "division"),
        ):
            with pytest.raises(psycopg.Error, match=error):
                conn.execute(statement.encode())
            left = "SELECT to_regclass('tv_company'), to_regclass('v_company')"
            assert conn.execute(left.encode()).fetchall() == [(None, None)]
        conn.execute("INSERT INTO tb_company (pk_company, name) VALUES (1, 'a')")
        with conn.transaction():
            conn.execute("UPDATE tb_company SET name = 'b'")
            conn.execute(
                f"-- by hand\nCREATE TABLE own.tv_company AS {COMPANY} WITH DATA ;".encode()
            )
            conn.execute("UPDATE tb_company SET name = 'c'")
        shown = "SELECT entity, tview::text, data -> 'name' FROM pgtrickle.tviews, tv_company"
        assert conn.execute(shown.encode()).fetchall() == [("company", "tv_company", "c")]


def test_a_table_that_is_created_as_one_on_request(conn: Connection, database: str) -> None:
    """Where the server does not compile, the table appears when the request is carried out."""
    conn.execute(SETUP.encode())
    with headwater.connect(database) as hw:
        conn.execute("SET pg_trickle.create_table_as = on")
        conn.execute(f"CREATE TABLE tv_company AS {COMPANY}".encode())
        missing = conn.execute("SELECT to_regclass('tv_company') IS NULL").fetchall()
        assert missing == [(True,)]
        hw.connection.execute("SET pg_trickle.create_table_as = on")
        with serving(hw.connection):
            errors: list[Exception | None] = []
            serve_waiting(hw.connection, lambda _, error: errors.append(error))
        assert errors == [None]
        conn.execute("INSERT INTO tb_company (pk_company, name) VALUES (1, 'a')")
        assert conn.execute("SELECT data FROM tv_company").fetchall() == [({"name": "a"},)]


def test_a_bulk_load_computes_all_at_once(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("INSERT INTO tb_company (pk_company, name) VALUES (1, 'a')")
    insert = "INSERT INTO tb_user (pk_user, name, fk_company) SELECT n, 'u', 1"
    conn.execute(f"{insert} FROM generate_series(1, 1000) AS n".encode())
    conn.execute("ANALYZE tb_company, tb_user, tb_post, tv_company")
    calls = (
        "SELECT coalesce(followed, 0), coalesce(recomputed, 0) FROM pgtrickle.tviews"
        " WHERE entity = 'user'"
    )
    conn.execute("SET track_functions = 'pl'")
    [(followed, recomputed)] = seen(conn, calls)
    conn.execute("UPDATE tb_user SET name = 'v' WHERE pk_user <= 60")
    assert seen(conn, calls) == [(followed + 1, recomputed)]
    with conn.transaction():
        conn.execute("UPDATE tb_user SET name = 'w' WHERE pk_user <= 600")
        conn.execute("DELETE FROM tb_user WHERE pk_user > 990")
    assert seen(conn, calls) == [(followed + 2, recomputed + 1)]
    assert wrong(conn) == {}
    written(conn)
    conn.execute("BEGIN")
    conn.execute("UPDATE tb_user SET name = 'x' WHERE pk_user <= 700")
    conn.execute("PREPARE TRANSACTION 'bulk'")
    conn.execute("COMMIT PREPARED 'bulk'")
    assert wrong(conn) == {}
    assert written(conn) == {"user UPDATE": 700}


def test_writers_flush_and_subscribers_find_rows(hw: headwater.Headwater, conn: Connection) -> None:
    """With the rights, and the replica identities, that the pages tell to give."""
    conn.execute(
        "CREATE PUBLICATION documents FOR TABLE tv_company, tv_user;"
        "ALTER TABLE tv_user REPLICA IDENTITY FULL"
    )
    insert = b"INSERT INTO tb_company (pk_company, name) VALUES (1, 'a')"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
        conn.execute(insert)
    [(index,)] = conn.execute(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'tv_company' AND indexname LIKE 'pgt%'"
    ).fetchall()
    conn.execute(f"ALTER TABLE tv_company REPLICA IDENTITY USING INDEX {index}".encode())
    conn.execute(insert)
    conn.execute("DROP ROLE IF EXISTS flusher; CREATE ROLE flusher")
    conn.execute("GRANT SELECT, UPDATE ON tb_company TO flusher")
    conn.execute("GRANT SELECT ON tv_company TO flusher")
    flushes = ["SET CONSTRAINTS ALL IMMEDIATE", "SELECT pgtrickle.flush_commit()"]
    for name, flush in zip(("c", "d"), flushes, strict=True):
        with conn.transaction():
            conn.execute("SET LOCAL ROLE flusher")
            conn.execute("UPDATE tb_company SET name = %s", [name])
            conn.execute(flush.encode())
            assert conn.execute("SELECT data ->> 'name' FROM tv_company").fetchall() == [(name,)]
        conn.execute("GRANT USAGE ON SCHEMA pgtrickle TO flusher")
    assert wrong(conn) == {}
    conn.execute("DROP OWNED BY flusher; DROP ROLE flusher")


def seen(conn: Connection, query: str) -> list[tuple[Any, ...]]:
    conn.execute("SELECT pg_stat_force_next_flush()")
    return conn.execute(query.encode()).fetchall()
