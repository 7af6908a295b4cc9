"""bit_and, bit_or and bit_xor from counts: in how many values each bit is set.

All counts of a call are one number, twelve decimal digits for each bit, highest bit first. Such
numbers add like any others, and no count reaches into the next: a group has fewer rows than 10¹².

    bit_and(x)  the bits that are set in all N values
    bit_or(x)   the bits that are set in some
    bit_xor(x)  the bits that are set in an odd number of them

Strings of bits count too where their type says how long they are.
"""

from __future__ import annotations

import re

from headwater.algebra.expr import Expr, text

_DIGITS = 12
_STRING = re.compile(r"bit\((\d+)\)")
_LONGEST = 64  # bits; more would make a number too long to be added for every row
_TESTS = {"bit_and": "= n", "bit_or": "> 0", "bit_xor": "% 2 = 1"}  # of the count of a bit

# How a value becomes a string of bits, and that a value again.
_INTEGERS = {
    "smallint": ("::integer::bit(32)", "::bit(32)::integer::smallint"),
    "integer": ("::bit(32)", "::bit(32)::integer"),
    "bigint": ("::bit(64)", "::bit(64)::bigint"),
}


def width(type_name: str) -> int | None:
    """Return the number of bits of all values of a type; None if they are not counted."""
    if type_name in _INTEGERS:
        return 64 if type_name == "bigint" else 32
    found = _STRING.fullmatch(type_name)
    return int(found[1]) if found and int(found[1]) <= _LONGEST else None


def packed(argument: Expr, type_name: str) -> Expr:
    """Return the number that has a 1 for each bit that is set in a value; 0 for NULL."""
    to_bits, _ = _INTEGERS.get(type_name, ("", ""))
    shown = text("(", argument, f"){to_bits}::text")
    marked = text("replace(replace(", shown, f", '1', 'x'), '0', '{0:0{_DIGITS}}')")
    return text("COALESCE(replace(", marked, f", 'x', '{1:0{_DIGITS}}')::numeric, 0)")


def unpacked(function: str, total: Expr, count: Expr, type_name: str) -> Expr:
    """Return the value of a call from the sum of such numbers and the number of values."""
    bits = width(type_name)
    assert bits is not None
    _, to_value = _INTEGERS.get(type_name, ("", f"::{type_name}"))
    digits = text("lpad((", total, f")::text, {bits * _DIGITS}, '0') AS counts")
    known = text("(SELECT ", digits, ", ", count, " AS n) AS q")
    each = f"substr(counts, {_DIGITS} * place + 1, {_DIGITS})::bigint {_TESTS[function]}"
    shown = f"string_agg(CASE WHEN {each} THEN '1' ELSE '0' END, '' ORDER BY place)"
    return text(
        f"(SELECT {shown} FROM ", known, f", generate_series(0, {bits - 1}) AS place){to_value}"
    )
