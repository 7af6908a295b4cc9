"""What PostgreSQL makes of counts and sums: variances and their roots, digit for digit.

Over integers and numeric PostgreSQL keeps N, Σ x and Σ x² exactly, and rounds in one division:

    var_pop(x)   =  (N Σ x² − (Σ x)²) / N²
    var_samp(x)  =  (N Σ x² − (Σ x)²) / (N (N − 1))

The same sums and the same operations in the same order give the same digits, in whatever order the
rows came and went. A quotient shows as many digits as `/` gives it, and its root is rounded to just
as many.
"""

from __future__ import annotations

from headwater.algebra.expr import Expr, text

# The number of values up to which the result is NULL.
VARIANCES = {
    **dict.fromkeys(("var_pop", "stddev_pop"), 0),
    **dict.fromkeys(("var_samp", "variance", "stddev_samp", "stddev"), 1),
}
# The value that decides if there is one such row, and the other.
BOOLEANS = {"bool_and": ("FALSE", "TRUE"), "every": ("FALSE", "TRUE"), "bool_or": ("TRUE", "FALSE")}


def varied(function: str, count: Expr, total: Expr, squares: Expr) -> Expr:
    """Return a variance or a standard deviation over the number of values and their sums."""
    n, one_less = text(count, "::numeric"), text("(", count, " - 1)::numeric")
    above = text("(", n, " * ", squares, " - ", _product(total), ")")
    below = text("(", n, " * ", one_less if VARIANCES[function] else n, ")")
    value = text("CASE WHEN ", above, " <= 0 THEN 0 ELSE ", above, " / ", below, " END")
    return _root(value) if function.startswith("stddev") else value


def _product(total: Expr) -> Expr:
    factor = text(total, "::numeric")
    return text(factor, " * ", factor)


def _root(value: Expr) -> Expr:
    """√v rounded to as many digits as v has.

    `sqrt` itself may give more of them, and rounding twice may end one too high: at s where
    v < (s − u)², with u half a unit of the last digit.
    """
    unit = "('5e-' || scale(v) + 1)::numeric AS u"
    once = text(f"SELECT v, round(sqrt(v), scale(v)) AS s, {unit} FROM (SELECT ", value, " AS v)")
    is_high = "s > 0 AND v < (s - u) * (s - u)"
    chosen = f"CASE WHEN {is_high} THEN round(s - 2 * u, scale(v)) ELSE s END"
    return text(f"(SELECT {chosen} FROM (", once, " AS one) AS root)")
