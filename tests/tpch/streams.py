"""Refresh streams over TPC-H: rows of all eight tables come, go and change, and some become NULL.

The values are those that the queries ask for, so that their few rows change too. Keys above the
generated ones are our own.
"""

from __future__ import annotations

from dataclasses import dataclass

# What the tables must hold beside their keys; the rest may be NULL.
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """Statements that are committed together."""

    name: str
    statements: str

    def split(self) -> list[str]:
        """Return the statements one by one."""
        return [text.strip() for text in self.statements.split(";") if text.strip()]


_INSERTS = """
INSERT INTO region VALUES (5, 'ATLANTIS', 'new'), (6, 'LEMURIA', 'new');
INSERT INTO nation VALUES (25, 'ATLANTIS CITY', 3, 'new'), (26, 'MU', 6, 'new'),
  (27, 'GERMANY', 3, 'a second one');
INSERT INTO supplier
SELECT 1000 + s_suppkey, 'New#' || s_suppkey, s_address, (ARRAY[7, 27, 3, 2])[1 + s_suppkey % 4],
       s_phone, s_acctbal + 1, CASE WHEN s_suppkey % 5 = 0 THEN 'the Customer has Complaints' END
  FROM supplier WHERE s_suppkey <= 20;
INSERT INTO customer
SELECT 100000 + c_custkey, 'New#' || c_custkey, c_address, (ARRAY[6, 7, 2, 8])[1 + c_custkey % 4],
       '13' || c_phone, 9000 + c_custkey % 100, 'BUILDING', c_comment
  FROM customer WHERE c_custkey <= 40;
INSERT INTO part
SELECT 100000 + p_partkey, 'forest green ' || p_name, p_mfgr, 'Brand#23', 'ECONOMY ANODIZED STEEL',
       15, 'MED BOX', p_retailprice, p_comment
  FROM part WHERE p_partkey <= 20;
INSERT INTO part
SELECT 200000 + p_partkey, p_name, p_mfgr, 'Brand#12', 'PROMO BRUSHED BRASS', 15, 'SM BOX',
       p_retailprice, p_comment
  FROM part WHERE p_partkey <= 20;
INSERT INTO partsupp
SELECT p_partkey, s_suppkey, 9000, 10 + s_suppkey % 7, 'new'
  FROM part, supplier
 WHERE p_partkey > 100000 AND s_suppkey > 1000 AND (p_partkey + s_suppkey) % 3 = 0;
INSERT INTO orders
SELECT 1000000 + o_orderkey, 100001 + o_orderkey % 40, 'F', o_totalprice,
       (ARRAY[date '1993-08-01', date '1995-02-01', date '1994-02-01', date '1993-11-01'])
         [1 + o_orderkey % 4], '1-URGENT', o_clerk, 0, o_comment
  FROM orders WHERE o_orderkey <= 200;
INSERT INTO lineitem
SELECT o_orderkey, ps_partkey, ps_suppkey, n, 10 * n % 57, 1000 * n, 0.06, 0.02, 'R', 'F',
       (ARRAY[date '1995-09-10', date '1996-02-01', date '1994-03-01', date '1995-06-01'])
         [1 + (o_orderkey + n) % 4],
       date '1995-01-01' + n::int, date '1995-01-03', 'DELIVER IN PERSON',
       (ARRAY['AIR', 'MAIL', 'SHIP'])[1 + n % 3], 'new'
  FROM (SELECT ps_partkey, ps_suppkey, row_number() OVER (ORDER BY ps_partkey, ps_suppkey) AS at
          FROM partsupp WHERE ps_partkey > 100000) AS ps,
       (SELECT o_orderkey, row_number() OVER (ORDER BY o_orderkey) AS at
          FROM orders WHERE o_orderkey > 1000000) AS o, generate_series(1, 7) AS n
 WHERE ps.at = 1 + (o.at * 7 + n) % 200"""

_UPDATES = """
UPDATE region SET r_name = CASE r_name WHEN 'ASIA' THEN 'EUROPE' ELSE 'ASIA' END
 WHERE r_name IN ('ASIA', 'EUROPE');
UPDATE nation SET n_name = 'CANADA' WHERE n_name = 'CHINA';
UPDATE nation SET n_regionkey = 1 WHERE n_name = 'ALGERIA';
UPDATE supplier SET s_nationkey = 20, s_acctbal = -s_acctbal WHERE s_suppkey % 9 = 0;
UPDATE supplier SET s_comment = 'Customer: many Complaints' WHERE s_suppkey % 30 = 1;
UPDATE customer SET c_acctbal = 9999.99 WHERE c_custkey % 97 = 0;
UPDATE customer SET c_mktsegment = 'BUILDING', c_nationkey = 7 WHERE c_custkey % 53 = 0;
UPDATE part SET p_size = 15, p_type = 'SMALL BRASS' WHERE p_partkey % 41 = 0;
UPDATE part SET p_brand = 'Brand#23', p_container = 'MED BOX', p_size = 9 WHERE p_partkey % 43 = 0;
UPDATE partsupp SET ps_supplycost = 1, ps_availqty = ps_availqty + 1 WHERE ps_partkey % 37 = 0;
UPDATE orders SET o_orderstatus = 'F', o_orderdate = date '1994-06-01' WHERE o_orderkey % 331 = 0;
UPDATE orders SET o_custkey = 1, o_comment = 'special requests' WHERE o_orderkey % 431 = 0;
UPDATE lineitem SET l_quantity = 50 WHERE l_orderkey % 67 = 0;
UPDATE lineitem SET l_shipdate = date '1996-01-15' WHERE l_orderkey % 211 = 0;
UPDATE lineitem SET l_receiptdate = l_commitdate + 1 WHERE l_orderkey % 101 = 0"""

_DELETES = """
DELETE FROM lineitem WHERE l_orderkey % 89 = 0;
DELETE FROM orders WHERE o_orderkey % 89 = 0;
DELETE FROM lineitem WHERE l_suppkey = 5 OR l_partkey > 200000;
DELETE FROM partsupp WHERE ps_suppkey = 5 OR ps_partkey > 200000;
DELETE FROM supplier WHERE s_suppkey = 5;
DELETE FROM part WHERE p_partkey > 200000;
DELETE FROM lineitem USING orders WHERE l_orderkey = o_orderkey AND o_custkey = 100003;
DELETE FROM orders WHERE o_custkey = 100003;
DELETE FROM customer WHERE c_custkey = 100003;
DELETE FROM nation WHERE n_nationkey IN (25, 26);
DELETE FROM region WHERE r_regionkey > 4"""

_NULLS = """
UPDATE region SET r_comment = NULL, r_name = NULL WHERE r_regionkey = 0;
UPDATE nation SET n_name = NULL WHERE n_nationkey IN (1, 7);
UPDATE nation SET n_regionkey = NULL WHERE n_nationkey = 2;
UPDATE supplier SET s_nationkey = NULL, s_name = NULL WHERE s_suppkey % 17 = 0;
UPDATE supplier SET s_comment = NULL, s_acctbal = NULL WHERE s_suppkey % 13 = 0;
UPDATE customer SET c_nationkey = NULL, c_name = NULL WHERE c_custkey % 101 = 0;
UPDATE customer SET c_acctbal = NULL, c_phone = NULL, c_mktsegment = NULL WHERE c_custkey % 89 = 0;
UPDATE part SET p_type = NULL, p_brand = NULL WHERE p_partkey % 47 = 0;
UPDATE part SET p_size = NULL, p_name = NULL, p_container = NULL WHERE p_partkey % 53 = 0;
UPDATE partsupp SET ps_supplycost = NULL WHERE ps_partkey % 59 = 0;
UPDATE partsupp SET ps_availqty = NULL WHERE ps_partkey % 61 = 0;
UPDATE orders SET o_custkey = NULL, o_orderpriority = NULL WHERE o_orderkey % 223 = 0;
UPDATE orders SET o_orderdate = NULL, o_comment = NULL, o_totalprice = NULL
 WHERE o_orderkey % 337 = 0;
UPDATE lineitem SET l_partkey = NULL, l_suppkey = NULL, l_quantity = NULL
 WHERE l_orderkey % 131 = 0;
UPDATE lineitem SET l_extendedprice = NULL, l_returnflag = NULL WHERE l_orderkey % 137 = 0;
UPDATE lineitem SET l_shipdate = NULL, l_discount = NULL, l_tax = NULL WHERE l_orderkey % 139 = 0;
UPDATE lineitem SET l_receiptdate = NULL, l_shipmode = NULL WHERE l_orderkey % 149 = 0"""

_RETURN = """
UPDATE region SET r_name = 'AFRICA' WHERE r_name IS NULL;
UPDATE nation SET n_name = 'GERMANY' WHERE n_name IS NULL;
UPDATE supplier SET s_nationkey = 7, s_name = 'again' WHERE s_nationkey IS NULL;
UPDATE customer SET c_phone = '31', c_acctbal = 9999 WHERE c_phone IS NULL;
UPDATE part SET p_type = 'PROMO', p_brand = 'Brand#34' WHERE p_type IS NULL;
UPDATE partsupp SET ps_supplycost = 0.5 WHERE ps_supplycost IS NULL;
UPDATE orders SET o_custkey = 7 WHERE o_custkey IS NULL;
UPDATE lineitem SET l_partkey = ps_partkey, l_suppkey = ps_suppkey, l_quantity = 1
  FROM partsupp WHERE l_partkey IS NULL AND ps_partkey = 86 AND ps_suppkey = 87;
DELETE FROM lineitem WHERE l_shipdate IS NULL"""

_ALL_LINES = "DELETE FROM lineitem"
_SOME_AGAIN = """
INSERT INTO lineitem
SELECT o_orderkey, ps_partkey, ps_suppkey, n, 50, 100 * n, 0.05, 0, 'R', 'O', date '1996-02-03',
       date '1994-01-01', date '1994-05-05', 'DELIVER IN PERSON', 'AIR', NULL
  FROM (SELECT o_orderkey, row_number() OVER (ORDER BY o_orderkey) AS at FROM orders LIMIT 100) AS o
  JOIN (SELECT ps_partkey, ps_suppkey, row_number() OVER (ORDER BY ps_partkey, ps_suppkey) AS at
          FROM partsupp LIMIT 100) AS ps USING (at), generate_series(1, 7) AS n"""

STREAMS = (
    Stream("inserts", _INSERTS),
    Stream("updates", _UPDATES),
    Stream("deletes", _DELETES),
    Stream("nulls", _NULLS),
    Stream("return", _RETURN),
    Stream("no lines", _ALL_LINES),
    Stream("lines again", _SOME_AGAIN),
)
