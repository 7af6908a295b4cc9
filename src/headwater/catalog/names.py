"""Turns names as users write them into identifiers, and back, as PostgreSQL does."""

from __future__ import annotations

import re
import string

from headwater.errors import InvalidArgument

# Every word that any supported server's quote_ident() quotes: pg_get_keywords() without class U.
_KEYWORDS = """
all analyse analyze and any array as asc asymmetric authorization between bigint binary bit
boolean both case cast char character check coalesce collate collation column concurrently
constraint create cross current_catalog current_date current_role current_schema current_time
current_timestamp current_user dec decimal default deferrable desc distinct do else end except
exists extract false fetch float for foreign freeze from full grant greatest group grouping
having ilike in initially inner inout int integer intersect interval into is isnull join json
json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar
json_serialize json_table json_value lateral leading least left like limit localtime
localtimestamp merge_action national natural nchar none normalize not notnull null nullif
numeric offset on only or order out outer overlaps overlay placing position precision primary
real references returning right row select session_user setof similar smallint some substring
symmetric system_user table tablesample then time timestamp to trailing treat trim true union
unique user using values varchar variadic verbose when where window with xmlattributes xmlconcat
xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
"""
_QUOTED_WORDS = frozenset(_KEYWORDS.split())
_SAFE = re.compile(r"[a-z_][a-z0-9_]*")
_PART = r'"(?:[^"]|"")+"|[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*'
_NAME = re.compile(rf"\s*({_PART})\s*(?:\.\s*({_PART})\s*)?", re.ASCII)
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_LONGEST_BYTES = 63


def quote_identifier(name: str) -> str:
    """Return `name` as SQL text, quoted only where it must be."""
    if _SAFE.fullmatch(name) and name not in _QUOTED_WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def qualified_name(schema: str, name: str) -> str:
    """Return `schema.name` as SQL text, each part quoted only where it must be."""
    return f"{quote_identifier(schema)}.{quote_identifier(name)}"


def split_name(text: str) -> tuple[str | None, str]:
    """Split a table name as a user writes it into schema (None if not given) and name.

    Unquoted parts are folded to lower case, ASCII letters only, and cut at 63 bytes.
    """
    match = _NAME.fullmatch(text)
    if match is None or "\0" in text:
        raise InvalidArgument(
            f"{text!r} is not the name of a table",
            why="a name is `table` or `schema.table`; other characters need double quotes",
            fix='write it as in SQL, for example "My schema"."My table"',
        )
    first, second = match.groups()
    if second is None:
        return None, _identifier(first)
    return _identifier(first), _identifier(second)


def _identifier(part: str) -> str:
    name = part[1:-1].replace('""', '"') if part.startswith('"') else part.translate(_LOWER)
    return name.encode()[:_LONGEST_BYTES].decode(errors="ignore")
