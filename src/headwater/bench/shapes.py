"""The queries that `bench refresh` keeps up to date, from a plain scan to a join of five tables."""

from __future__ import annotations

from headwater.bench.shop import SCHEMA as S

SHAPES = {
    "scan": f"SELECT id, customer_id, channel, quantity, amount FROM {S}.sales",
    "filter": f"""\
SELECT id, customer_id, channel, amount FROM {S}.sales WHERE amount >= 750 AND channel <> 'web'""",
    "aggregate-5": f"""\
SELECT channel, count(*) AS sales, sum(amount) AS amount, avg(quantity) AS quantity
  FROM {S}.sales GROUP BY channel""",
    "aggregate-1000": f"""\
SELECT campaign_id, count(*) AS sales, sum(amount) AS amount, avg(quantity) AS quantity
  FROM {S}.sales GROUP BY campaign_id""",
    "join": f"""\
SELECT s.id, s.quantity, s.amount, c.name, c.segment
  FROM {S}.sales s JOIN {S}.customers c ON c.id = s.customer_id""",
    "join-aggregate": f"""\
SELECT c.country, count(*) AS sales, sum(s.amount) AS amount
  FROM {S}.sales s JOIN {S}.customers c ON c.id = s.customer_id GROUP BY c.country""",
    "five-way-aggregate": f"""\
SELECT r.name AS region, p.category, c.segment, count(*) AS sales, sum(s.amount) AS amount,
       sum(s.quantity * p.price) AS list_price
  FROM {S}.sales s
  JOIN {S}.customers c ON c.id = s.customer_id
  JOIN {S}.products p ON p.id = s.product_id
  JOIN {S}.stores t ON t.id = s.store_id
  JOIN {S}.regions r ON r.id = t.region_id
 GROUP BY r.name, p.category, c.segment""",
}
