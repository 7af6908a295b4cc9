"""Sums on Spark are PostgreSQL's to the last digit, whatever the scale and the weights."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.api import Headwater
from headwater.errors import InexactValue
from headwater.spark.sums import weighted
from headwater.spark.wire import decimal_wire
from headwater.spark.wires import quoted
from tests.battery.oracle import find_difference

SHAPES = ((6, 2), (15, 2), (12, 8), (20, 20), (27, 10), (28, 0), (38, 0), (38, 6), (38, 20))
WEIGHTS = (1, -1, 2, -3)
DIGITS = Context(prec=60)

SETUP = """
CREATE TABLE lines (
    id int PRIMARY KEY, k int, whole numeric(38, 0), fine numeric(38, 20), thin numeric(12, 8),
    n bigint, price numeric(15, 2), discount numeric(15, 2), tax numeric(15, 2));
INSERT INTO lines SELECT n, n % 3,
       repeat('9', 35)::numeric * 100 + n % 2, 0.12345678901234567890 + n % 2,
       1234.12345678 + n % 2, 9223372036854775000 + n % 2, 1.01 * n, 0.01 * (n % 10), 0.03
  FROM generate_series(1, 12) AS n;
UPDATE lines SET tax = 'NaN' WHERE id = 12;
"""
PLAIN = """
SELECT k, sum(whole) AS whole, sum(fine) AS fine, sum(thin) AS thin, sum(n) AS n, avg(thin) AS mean
  FROM lines GROUP BY k"""
# The product has 47 digits by its type, which Spark does not have: PostgreSQL makes it at ingest.
CHARGES = """
SELECT k, sum(price * (1 - discount) * (1 + tax)) AS charge, avg(price) AS price, count(*) AS n
  FROM lines GROUP BY k"""
CHANGES = (
    "DELETE FROM lines WHERE id = 1",
    "UPDATE lines SET id = id + 100, k = 1, fine = -0.00000000000000000009 WHERE id < 9",
    "INSERT INTO lines SELECT n, 2, 1, 1, 1, 1, 1, 1, 1 FROM generate_series(200, 204) AS n",
    "UPDATE lines SET tax = 0.07 WHERE tax = 'NaN'",
    "DELETE FROM lines WHERE k = 2",
)


def values_of(precision: int, scale: int) -> list[Decimal]:
    most = Decimal("9" * precision).scaleb(-scale, DIGITS)
    least = Decimal(1).scaleb(-scale, DIGITS)
    return [most, -most, least, Decimal(0), Decimal("7" * (precision - 1) or "1").scaleb(-scale)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_value_times_its_weight_loses_nothing(
    spark: SparkSession, shape: tuple[int, int]
) -> None:
    limit = Decimal(10) ** (38 - shape[1])
    with localcontext(DIGITS):
        pairs = [(v, w) for v in values_of(*shape) for w in WEIGHTS]
        fitting = [(v, w) for v, w in pairs if abs(v * w) < limit]
        assert computed(spark, shape, fitting) == [v * w for v, w in fitting]
        for pair in set(pairs) - set(fitting):
            with pytest.raises(PySparkException):
                computed(spark, shape, [pair])


def computed(
    spark: SparkSession, shape: tuple[int, int], pairs: list[tuple[Decimal, int]]
) -> list[Decimal]:
    wire = decimal_wire(*shape)
    rows = ", ".join(f"({n}, CAST('{v:f}' AS {wire.spark}), {w})" for n, (v, w) in enumerate(pairs))
    value = weighted(quoted("v"), wire, decimal_wire(38, shape[1]))
    found = spark.sql(f"SELECT {value} FROM VALUES {rows} AS t (n, v, __weight) ORDER BY n")
    return [row[0] for row in found.collect()]


def test_sums_follow_every_digit(hw: Headwater, dsn: str) -> None:
    queries = {"plain": PLAIN, "charges": CHARGES}
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name, query in queries.items():
            hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", engine="spark")
            assert find_difference(conn, query, name) is None
        for change in CHANGES:
            conn.execute(change.encode())
            for name, query in queries.items():
                assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
                assert find_difference(conn, query, name) is None


def test_what_is_summed_is_made_where_it_can_be(hw: Headwater, dsn: str) -> None:
    """Else Spark would hand over every row, and PostgreSQL would have to sum them."""
    hw.create_stream_table("charges", CHARGES, refresh_mode="DIFFERENTIAL", engine="spark")
    explained = hw.explain_st("charges").spark
    assert explained is not None
    assert explained.statement.startswith("SELECT `k`, CAST(coalesce(sum(")
    assert any("tax" in made for made in explained.at_ingest)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO lines VALUES (300, 0, 0, 0, 0, 0, 9e12, -9e12, 9e12)")
    with pytest.raises(InexactValue):  # of 33 digits before the point
        hw.refresh_stream_table("charges")
