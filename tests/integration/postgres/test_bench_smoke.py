"""The benchmarks run to their end, on tiny data, and report what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
from click.testing import CliRunner

from headwater.bench.shapes import SHAPES
from headwater.cli import main


def run(dsn: str, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["--dsn", dsn, "bench", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_refresh(database: str, tmp_path: Path) -> None:
    output = tmp_path / "refresh.json"
    document = run(
        database, "refresh", "--rows", "300", "--changed", "10", "--repeat", "1",
        "--output", str(output),
    )  # fmt: skip
    assert [cell["shape"] for cell in document["cells"]] == list(SHAPES)
    assert all(cell["delta_rows"] > 0 and cell["rows_read"] > 0 for cell in document["cells"])
    assert document["summary"][0]["rows"] == 300
    assert json.loads(output.read_text()) == document
    assert_nothing_left(database)


def test_capture(database: str) -> None:
    document = run(
        database, "capture", "--rows", "1,100", "--table-rows", "500", "--statements", "20",
        "--repeat", "1",
    )  # fmt: skip
    names = ("width", "write", "statement_rows", "sent")
    assert [tuple(case[name] for name in names) for case in document["cases"]] == [
        (width, write, rows, sent)
        for width in ("ordinary", "wide")
        for rows, sent in ((1, "text"), (1, "prepared"), (100, "prepared"))
        for write in ("INSERT", "UPDATE", "DELETE")
    ]
    assert all(case["ratio"] > 0 for case in document["cases"])
    assert_nothing_left(database)


def test_immediate(database: str) -> None:
    document = run(
        database, "immediate", "--rows", "1000", "--statements", "5", "--repeat", "1",
        "--clients", "2", "--seconds", "0.3",
    )  # fmt: skip
    assert {cost["view"] for cost in document["costs"]} == {"groups", "joined"}
    assert all(cost["ratios"].keys() == {"by hand", "with"} for cost in document["costs"])
    assert document["totals"].keys() == {"single", "bulk"}
    assert [(r["view"], r["clients"], r["tps"]["with"] > 0) for r in document["rates"]] == [
        ("groups", 2, True),
        ("joined", 2, True),
    ]
    assert_nothing_left(database)


def test_schedule(database: str) -> None:
    document = run(database, "schedule", "--tables", "5", "--repeat", "2")
    assert [each["tables"] for each in document["rounds"]] == [5, 5]
    assert all(each["daemon_cpu"] > 0 and each["no_data_ms"] > 0 for each in document["rounds"])
    assert_nothing_left(database)


def test_pg_ivm_must_be_there(database: str) -> None:
    result = CliRunner().invoke(
        main, ["--dsn", database, "bench", "immediate", "--pg-ivm-dsn", database]
    )
    assert result.exit_code == 4
    assert "HW-304: the server of --pg-ivm-dsn has no pg_ivm in this database" in result.output


def assert_nothing_left(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "SELECT to_regnamespace('headwater_bench'), count(*) FROM pgtrickle.pgt_stream_tables"
        ).fetchone()
    assert row == (None, 0)
