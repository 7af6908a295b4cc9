from __future__ import annotations

import pytest

from headwater.catalog.names import qualified_name, quote_identifier, split_name
from headwater.errors import InvalidArgument


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a_1", "a_1"),
        ("A", '"A"'),
        ("1a", '"1a"'),
        ("a$", '"a$"'),
        ("é", '"é"'),
        ("a b", '"a b"'),
        ('a"b', '"a""b"'),
        ("order", '"order"'),
        ("date", "date"),
    ],
)
def test_quote(name: str, quoted: str) -> None:
    assert quote_identifier(name) == quoted


def test_qualified_name() -> None:
    assert qualified_name("public", "My table") == 'public."My table"'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("totals", (None, "totals")),
        ("Totals", (None, "totals")),
        ('"Totals"', (None, "Totals")),
        ("S.Totals", ("s", "totals")),
        ('"S"."a.b"', ("S", "a.b")),
        ('s."a""b"', ("s", 'a"b')),
        (" s . t ", ("s", "t")),
        ("ÀB", (None, "Àb")),
        ("a" * 70, (None, "a" * 63)),
        ("é" * 40, (None, "é" * 31)),
    ],
)
def test_split(text: str, parts: tuple[str | None, str]) -> None:
    assert split_name(text) == parts


@pytest.mark.parametrize("text", ["", "a b", "a.", ".a", "a.b.c", '"a', '""', "1a", "a;b", '"a\0"'])
def test_no_name(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not the name of a table"):
        split_name(text)
