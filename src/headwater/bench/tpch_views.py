"""The queries that `bench spark` keeps up to date: a plain join, a window, and TPC-H.

A year is an integer in them, since numeric is no key for Spark. Whatever the compiler or the engine
refuses is reported with its reason.
"""

from __future__ import annotations

import re

from headwater.bench.tpch_queries import QUERIES

_YEAR = re.compile(r"extract\(year FROM \w+\)")

VIEWS = {
    "join": """
SELECT l_orderkey, l_linenumber, o_custkey, o_orderdate, l_partkey, l_quantity, l_extendedprice
  FROM orders JOIN lineitem ON l_orderkey = o_orderkey""",
    "window": """
SELECT o_orderkey, o_custkey, o_totalprice, row_number() OVER w AS place,
       sum(o_totalprice) OVER w AS so_far
  FROM orders WINDOW w AS (PARTITION BY o_custkey ORDER BY o_orderkey)""",
} | {name: _YEAR.sub(r"\g<0>::int", query) for name, query in QUERIES.items()}
