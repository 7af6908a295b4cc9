"""What `bench immediate` keeps up to date, and how it is written to."""

from __future__ import annotations

from dataclasses import dataclass

VIEWS = {
    "groups": "SELECT g, count(*) AS n, sum(v) AS s, avg(v) AS a FROM t GROUP BY g",
    "joined": "SELECT o.id, o.amount, o.customer_id, c.name FROM orders o"
    " JOIN customers c ON c.id = o.customer_id",
}


@dataclass(frozen=True, slots=True)
class Write:
    """One kind of statement; `n` counts on, `g` groups and `c` customers there are."""

    view: str
    name: str
    statement: str
    rows: int = 1


# New rows have ids from 10,000,001 on; a DELETE takes away what an INSERT of its size brought.
WRITES = (
    Write("groups", "INSERT", "INSERT INTO t VALUES (10000000 + %(n)s, %(n)s %% %(g)s, %(n)s)"),
    Write("groups", "UPDATE of a value", "UPDATE t SET v = v + 1 WHERE id = %(n)s"),
    Write("groups", "UPDATE of a group", "UPDATE t SET g = (g + 1) %% %(g)s WHERE id = %(n)s"),
    Write("groups", "DELETE", "DELETE FROM t WHERE id = 10000000 + %(n)s"),
    Write(
        "groups",
        "INSERT",
        "INSERT INTO t SELECT 20000000 + %(n)s * 1000 + i, i %% %(g)s, i"
        " FROM generate_series(1, 1000) AS i",
        1000,
    ),
    Write(
        "groups",
        "UPDATE",
        "UPDATE t SET v = v + 1 WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
    Write(
        "groups",
        "DELETE",
        "DELETE FROM t WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
    Write(
        "joined", "INSERT", "INSERT INTO orders VALUES (10000000 + %(n)s, %(n)s %% %(c)s + 1, 5)"
    ),
    Write("joined", "UPDATE of a value", "UPDATE orders SET amount = amount + 1 WHERE id = %(n)s"),
    Write(
        "joined",
        "UPDATE of the join key",
        "UPDATE orders SET customer_id = customer_id %% %(c)s + 1 WHERE id = %(n)s",
    ),
    Write("joined", "DELETE", "DELETE FROM orders WHERE id = 10000000 + %(n)s"),
    Write(
        "joined",
        "UPDATE of the other side",
        "UPDATE customers SET name = name || 'x' WHERE id = %(n)s %% %(c)s + 1",
    ),
    Write(
        "joined",
        "INSERT",
        "INSERT INTO orders SELECT 20000000 + %(n)s * 1000 + i, i %% %(c)s + 1, i"
        " FROM generate_series(1, 1000) AS i",
        1000,
    ),
    Write(
        "joined",
        "UPDATE",
        "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
    Write(
        "joined",
        "DELETE",
        "DELETE FROM orders WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
    Write(
        "joined",
        "UPDATE of the other side",
        "UPDATE customers SET name = name || 'x' WHERE id BETWEEN %(n)s * 100 %% %(c)s + 1"
        " AND %(n)s * 100 %% %(c)s + 100",
        100,
    ),
)
# What many clients do at once; `r` is a random number of the loop.
TOGETHER = {
    "groups": "UPDATE t SET v = v + 1 WHERE id = 1 + r %% {rows}",
    "joined": "UPDATE orders SET amount = amount + 1, customer_id = 1 + r / 7 %% {few}"
    " WHERE id = 1 + r %% {rows}",
}
