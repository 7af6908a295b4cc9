"""The data of `bench refresh`: a fact table, four dimensions, and changes of a given size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection

SCHEMA = "headwater_bench"
UPDATED, DELETED = 0.70, 0.15  # shares of a change; the rest is inserted

_SALES = """
CREATE TABLE {name} (
    id bigint NOT NULL, customer_id int NOT NULL, product_id int NOT NULL, store_id int NOT NULL,
    campaign_id int NOT NULL, channel text NOT NULL, quantity int NOT NULL,
    amount numeric(12, 2) NOT NULL, sold_on date NOT NULL)"""
_DIMENSIONS = """
CREATE TABLE regions (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE stores (id int PRIMARY KEY, region_id int NOT NULL REFERENCES regions,
                     city text NOT NULL);
CREATE TABLE products (id int PRIMARY KEY, category text NOT NULL, price numeric(10, 2) NOT NULL);
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, country text NOT NULL,
                        segment text NOT NULL);
INSERT INTO regions SELECT n, 'region ' || n FROM generate_series(1, {regions}) AS n;
INSERT INTO stores SELECT n, 1 + n % {regions}, 'city ' || n / 3
  FROM generate_series(1, {stores}) AS n;
INSERT INTO products SELECT n, 'category ' || n % 20, 1 + n % 97 + 0.99
  FROM generate_series(1, {products}) AS n;
INSERT INTO customers SELECT n, 'customer ' || n, 'country ' || n % 50, 'segment ' || n % 5
  FROM generate_series(1, {customers}) AS n;
CREATE INDEX ON stores (region_id);
ANALYZE regions, stores, products, customers"""
_DRESS = """
ALTER TABLE sales ADD PRIMARY KEY (id);
CREATE INDEX ON sales (customer_id);
CREATE INDEX ON sales (product_id);
CREATE INDEX ON sales (store_id);
CREATE INDEX ON sales (campaign_id);
ALTER TABLE sales ADD FOREIGN KEY (customer_id) REFERENCES customers,
                  ADD FOREIGN KEY (product_id) REFERENCES products,
                  ADD FOREIGN KEY (store_id) REFERENCES stores"""
_PICK = """
CREATE TEMP TABLE picked AS
SELECT id, row_number() OVER () AS position
  FROM (SELECT id FROM sales ORDER BY random() LIMIT {picked}) AS s;
ALTER TABLE picked ADD PRIMARY KEY (id);
ANALYZE picked"""
# One update in ten also moves the row to another group and another customer.
_UPDATE = """
UPDATE sales AS s
   SET quantity = 1 + floor(random() * 9)::int,
       amount = round((random() * 1000)::numeric, 2),
       channel = CASE WHEN position % 10 = 0 THEN {channel} ELSE channel END,
       campaign_id = CASE WHEN position % 10 = 0 THEN 1 + position % 1000 ELSE campaign_id END,
       customer_id = CASE WHEN position % 10 = 0 THEN 1 + position % {customers}
                          ELSE customer_id END
  FROM picked AS p WHERE p.id = s.id AND p.position <= {updates}"""
_CHANNEL = "(ARRAY['web', 'shop', 'phone', 'partner', 'fair'])[1 + floor(random() * 5)::int]"


@dataclass(frozen=True, slots=True)
class Shop:
    """How many rows each table has."""

    sales: int

    @property
    def customers(self) -> int:
        """A customer buys 20 times."""
        return max(10, self.sales // 20)

    @property
    def products(self) -> int:
        """A product sells 500 times."""
        return max(10, self.sales // 500)

    @property
    def stores(self) -> int:
        """At most 200."""
        return max(5, min(200, self.sales // 1000))

    @property
    def regions(self) -> int:
        """Always the same."""
        return 5


def build(conn: Connection[Any], shop: Shop) -> None:
    """Make the schema anew: the dimensions, and the pristine rows of the fact table."""
    execute(conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    execute(conn, f"CREATE SCHEMA {SCHEMA}")
    execute(conn, f"SET search_path = {SCHEMA}")
    sizes = {n: getattr(shop, n) for n in ("regions", "stores", "products", "customers")}
    execute(conn, _DIMENSIONS.format(**sizes))
    execute(conn, _SALES.format(name="pristine"))
    execute(conn, "SELECT setseed(0.5)")
    execute(conn, f"INSERT INTO pristine {_new_sales(shop, '1', str(shop.sales))}")


def reset_sales(conn: Connection[Any]) -> None:
    """Make the fact table anew from its pristine rows, with its indexes and statistics."""
    execute(conn, "DROP TABLE IF EXISTS sales, sales_like")
    execute(conn, _SALES.format(name="sales"))
    execute(conn, "INSERT INTO sales SELECT * FROM pristine")
    execute(conn, _DRESS)
    execute(conn, "CREATE TABLE sales_like (LIKE sales INCLUDING ALL)")
    execute(conn, "VACUUM ANALYZE sales")


def apply_change(conn: Connection[Any], shop: Shop, share: float, seed: int) -> int:
    """Change a share of the fact table's rows in one transaction; return how many rows.

    The rows that changed are left in the temporary table `delta_rows`: an updated or inserted row
    as it is now, a deleted one as it was.
    """
    rows = max(3, round(shop.sales * share))
    updates, deletes = round(rows * UPDATED), round(rows * DELETED)
    row = conn.execute("SELECT max(id) FROM sales").fetchone()
    top = int(row[0]) if row else 0
    execute(conn, "DROP TABLE IF EXISTS picked, delta_rows")
    execute(conn, f"SELECT setseed({seed % 1000 / 1000})")
    execute(conn, _PICK.format(picked=updates + deletes))
    execute(conn, f"CREATE TEMP TABLE delta_rows AS SELECT s.* FROM sales s JOIN picked USING (id)"
                  f" WHERE position > {updates}")  # fmt: skip
    with conn.transaction():
        customers = shop.customers
        execute(conn, _UPDATE.format(channel=_CHANNEL, customers=customers, updates=updates))
        execute(conn, f"DELETE FROM sales AS s USING picked AS p"
                      f" WHERE p.id = s.id AND p.position > {updates}")  # fmt: skip
        new = _new_sales(shop, str(top + 1), str(top + rows - updates - deletes))
        execute(conn, f"INSERT INTO sales {new}")
    execute(conn, f"INSERT INTO delta_rows SELECT s.* FROM sales s JOIN picked USING (id)"
                  f" UNION ALL SELECT * FROM sales WHERE id > {top}")  # fmt: skip
    execute(conn, "ANALYZE delta_rows")
    return rows


def _new_sales(shop: Shop, first: str, last: str) -> str:
    return (
        f"SELECT n, 1 + floor(random() * {shop.customers})::int,"
        f" 1 + floor(random() * {shop.products})::int, 1 + floor(random() * {shop.stores})::int,"
        f" 1 + floor(random() * 1000)::int, {_CHANNEL}, 1 + floor(random() * 9)::int,"
        " round((random() * 1000)::numeric, 2), date '2024-01-01' + floor(random() * 700)::int"
        f" FROM generate_series({first}, {last}) AS n"
    )


def execute(conn: Connection[Any], statement: str) -> None:
    """Run SQL, one or several statements without parameters."""
    conn.execute(statement.encode())
