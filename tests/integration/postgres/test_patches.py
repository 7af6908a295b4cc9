"""Patches: applied in their order to the documents that a reader has, they give those that are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import headwater
from headwater.cli import main
from headwater.results import Patch
from tests.scale import scaled

Connection = psycopg.Connection[Any]
Documents = dict[str, Any]
SETUP = """
CREATE TABLE tb_page (pk_page int PRIMARY KEY, body jsonb NOT NULL, fk_site int);
CREATE TABLE tb_note (pk_note int PRIMARY KEY, fk_page int, note jsonb);
CREATE INDEX ON tb_note (fk_page);
"""
PAGE = """
SELECT p.pk_page, p.fk_site, p.body || jsonb_build_object('notes', (
           SELECT jsonb_agg(n.note ORDER BY n.pk_note) FROM tb_note n WHERE n.fk_page = p.pk_page))
       AS data FROM tb_page p
"""


@pytest.fixture
def hw(conn: Connection, database: str) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP.encode())
    with headwater.connect(database) as made:
        made.create_tview("tv_page", PAGE, patches=True)
        yield made


def merged(document: Any, patch: Any) -> Any:
    """The algorithm of RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def applied(documents: Documents, patches: tuple[Patch, ...]) -> Documents:
    """What a reader makes of the documents that he has."""
    found = dict(documents)
    for patch in patches:
        key = json.dumps(patch.key)
        if patch.kind == "delete":
            del found[key]
        elif patch.kind == "update":
            found[key] = merged(found[key], patch.patch)
        else:
            assert (key in found) == (patch.kind == "replace")
            found[key] = patch.patch
    return found


def stored(conn: Connection) -> Documents:
    query = "SELECT jsonb_build_object('pk_page', pk_page), data FROM tv_page"
    return {json.dumps(key): data for key, data in conn.execute(query.encode()).fetchall()}


def any_value(random: Random, depth: int = 3) -> Any:
    """A small value of JSON, such that names and values of two often meet."""
    kinds: list[Any] = [None, True, "x", 0, 1.5, [], {}]
    if depth:
        kinds += [{k: any_value(random, depth - 1) for k in "abc" if random.random() < 0.6}] * 8
        kinds += [[any_value(random, depth - 1) for _ in range(random.randint(0, 2))]] * 2
    return random.choice(kinds)


def any_object(random: Random) -> dict[str, Any]:
    return {k: any_value(random) for k in "abcd" if random.random() < 0.6}


def has_null(value: Any) -> bool:
    """Whether some member is null, where a patch would say that it goes."""
    return isinstance(value, dict) and any(v is None or has_null(v) for v in value.values())


def test_a_merge_patch_leads_from_one_document_to_another(conn: Connection, database: str) -> None:
    with headwater.connect(database):
        pass
    random = Random(7396)
    pairs = [(any_value(random), any_value(random)) for _ in range(scaled(2000))]
    texts = [json.dumps(list(pair)) for pair in pairs]
    found = conn.execute(
        "SELECT pgtrickle.merge_patch(pair -> 0, pair -> 1) IS NULL,"
        " pgtrickle.merge_patch(pair -> 0, pair -> 1)"
        " FROM unnest(%s::jsonb[]) WITH ORDINALITY AS u (pair, n) ORDER BY n",
        [texts],
    ).fetchall()
    for (was, becomes), (is_none, patch) in zip(pairs, found, strict=True):
        if is_none:
            assert has_null(becomes)
        else:
            assert json.dumps(merged(was, patch), sort_keys=True) == json.dumps(
                becomes, sort_keys=True
            )
            if isinstance(was, dict) and isinstance(becomes, dict):
                assert (patch == {}) == (was == becomes)
    assert 100 < sum(is_none for is_none, _ in found) < len(found) / 2


def test_the_patch_is_no_larger_than_the_change(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("""INSERT INTO tb_page VALUES (1, '{"a": {"b": 1, "c": 2}, "d": [1, 2]}')""")
    conn.execute("""UPDATE tb_page SET body = '{"a": {"b": 1, "c": 3}, "d": [1, 2]}'""")
    conn.execute("INSERT INTO tb_note VALUES (1, 1, '{}'), (2, 1, 'null')")
    conn.execute("UPDATE tb_page SET fk_site = 1")  # no part of the document
    conn.execute("""UPDATE tb_page SET body = '{"a": {"b": 1, "c": 3}, "d": null}'""")
    conn.execute("DELETE FROM tb_note")
    conn.execute("""UPDATE tb_page SET body = '{"a": {"c": 3.0}, "d": null}'""")
    conn.execute("DELETE FROM tb_page")
    found = [(p.kind, p.patch) for p in hw.patches()]
    assert found == [
        ("insert", {"a": {"b": 1, "c": 2}, "d": [1, 2], "notes": None}),
        ("update", {"a": {"c": 3}}),
        ("update", {"notes": [{}, None]}),
        ("replace", {"a": {"b": 1, "c": 3}, "d": None, "notes": [{}, None]}),
        ("replace", {"a": {"b": 1, "c": 3}, "d": None, "notes": None}),
        ("update", {"a": {"b": None, "c": 3.0}}),
        ("delete", None),
    ]
    assert {(p.entity, json.dumps(p.key)) for p in hw.patches()} == {("page", '{"pk_page": 1}')}
    assert len({p.xid for p in hw.patches()}) == len(found)


def any_statement(random: Random) -> tuple[str, tuple[Any, ...]]:
    page, body = random.randint(1, 4), json.dumps(any_object(random))
    note = json.dumps(any_value(random, 1))
    return random.choice((
        ("INSERT INTO tb_page VALUES (%s, %s) ON CONFLICT DO NOTHING", (page, body)),
        ("UPDATE tb_page SET body = %s WHERE pk_page >= %s", (body, page)),
        ("UPDATE tb_page SET body = jsonb_set(body, '{a}', %s) WHERE pk_page = %s", (note, page)),
        ("DELETE FROM tb_page WHERE pk_page = %s", (page,)),
        ("INSERT INTO tb_note VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (page, page % 3, note)),
        ("UPDATE tb_note SET note = %s, fk_page = fk_page + 1", (note,)),
        ("DELETE FROM tb_note WHERE pk_note = %s", (page,)),
    ))  # fmt: skip


def test_patches_in_order_give_the_documents(hw: headwater.Headwater, conn: Connection) -> None:
    """Read on from position to position, and trimmed meanwhile, nothing is missed or doubled."""
    random, kinds = Random(4), set[str]()
    documents, position = stored(conn), hw.patch_position()
    for turn in range(scaled(150)):
        with conn.transaction(force_rollback=random.random() < 0.1):
            for _ in range(random.randint(1, 4)):
                conn.execute(*any_statement(random))
        if turn % 3 == 0:
            found = hw.patches(position, "tv_page")
            documents = applied(documents, found)
            kinds |= {p.kind for p in found}
            position = found[-1].position if found else position
            if turn % 2:
                hw.trim_patches(position)
            assert documents == stored(conn)
    assert kinds == {"insert", "update", "replace", "delete"}
    before = hw.patch_position()
    conn.execute("INSERT INTO tb_page VALUES (5, '{}')")
    conn.execute(
        "CREATE OR REPLACE VIEW v_page AS SELECT pk_page, fk_site, body AS data FROM tb_page"
    )
    documents = stored(conn)
    hw.refresh_stream_table("tv_page")
    assert applied(documents, hw.patches(before)[1:]) == stored(conn)
    assert hw.trim_patches() > 0
    assert hw.patches() == ()
    hw.create_tview("tv_note", "SELECT pk_note, '{}'::jsonb AS data FROM tb_note", patches=True)
    conn.execute("INSERT INTO tb_note VALUES (9)")
    assert (len(hw.patches()), hw.patches(name="tv_page")) == (1, ())
    hw.drop_stream_table("tv_note")
    assert hw.patches() == ()


def test_a_late_commit_is_not_missed(hw: headwater.Headwater, database: str) -> None:
    """Neither where a lower number is committed later, nor in the transaction of the reader."""
    hw.connection.execute("CREATE TABLE tb_item (pk_item int PRIMARY KEY, data jsonb)")
    hw.create_tview("tv_item", "SELECT pk_item, data FROM tb_item", patches=True)
    insert = "INSERT INTO tb_item VALUES (%s, '{}')"
    with psycopg.connect(database) as slow, psycopg.connect(database) as quick:
        slow.execute(insert, [1])
        slow.execute("SELECT pgtrickle.flush_commit()")
        quick.execute(insert, [2])
        quick.commit()
        [first] = hw.patches()
        slow.commit()
        [second] = hw.patches(first.position)
        assert (first.key["pk_item"], second.key["pk_item"]) == (2, 1)
        assert first.patch_id > second.patch_id
        quick.execute(insert, [3])
        slow.execute(insert, [4])
        slow.commit()
        read = "SELECT key ->> 'pk_item', position::text FROM pgtrickle.patches(%s)"
        found = quick.execute(read, [second.position]).fetchall()
        quick.commit()
        assert [item for item, _ in found] == ["4"]
        [third] = hw.patches(found[0][1])
        assert third.key == {"pk_item": 3}


def test_from_the_command_line(hw: headwater.Headwater, conn: Connection) -> None:
    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(main, ["--dsn", hw.dsn, *arguments, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    query = "SELECT pk_note, note AS data FROM tb_note"
    run("create-tview", "tv_note", query, "--patches")
    conn.execute("INSERT INTO tb_note VALUES (1, 1, '1')")
    [found] = run("patches", "tv_note")
    assert (found["kind"], found["patch"], found["key"]) == ("insert", 1, {"pk_note": 1})
    assert run("patches", "tv_note", "--after", found["position"], "--trim") == []
    assert run("patches") == []
