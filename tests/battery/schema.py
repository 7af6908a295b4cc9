"""The sources that every fixture of the battery reads, and their first rows.

Tiny domains, so that keys collide; NULLs wherever a column allows them; a table without a key and
with duplicates; names in mixed case, reserved words, and two columns that differ only in case.
"""

from __future__ import annotations

SETUP = """
CREATE SCHEMA shop;
CREATE SCHEMA "Mixed Case";
CREATE SCHEMA st;

CREATE TYPE shop.mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN shop.percent AS int CHECK (VALUE BETWEEN 0 AND 100);
CREATE TYPE shop.pair AS (first int, second text);

CREATE TABLE shop.customers (
    id int PRIMARY KEY,
    name text,
    region text,
    vip boolean,
    born date,
    joined timestamptz,
    tags text[],
    profile jsonb,
    code uuid,
    mood shop.mood,
    credit numeric(10, 2),
    share shop.percent,
    initial char(3),
    span interval,
    duo shop.pair
);

CREATE TABLE shop.orders (
    id int PRIMARY KEY,
    customer_id int REFERENCES shop.customers ON DELETE CASCADE ON UPDATE CASCADE,
    amount numeric,
    price numeric(10, 2),
    qty smallint,
    units int,
    edge int,
    big bigint,
    rate float8,
    thin real,
    at timestamp,
    note text,
    raw bytea,
    doc json,
    spot point,
    doubled int GENERATED ALWAYS AS (units * 2) STORED
);
CREATE INDEX ON shop.orders (customer_id);

-- No key, and duplicates are the rule.
CREATE TABLE shop.events (kind text, value int, other text);

CREATE TABLE "Mixed Case"."Order" (
    "A" int, a int, "select" text, "user" text, "from" int, "Group" text, "100%" int
);

CREATE TABLE shop.readings (
    sensor int NOT NULL, day date, value float8, label text
) PARTITION BY RANGE (sensor);
CREATE TABLE shop.readings_low PARTITION OF shop.readings FOR VALUES FROM (0) TO (10);
-- The same columns in another order.
CREATE TABLE shop.readings_high (label text, value float8, sensor int NOT NULL, day date);
ALTER TABLE shop.readings ATTACH PARTITION shop.readings_high FOR VALUES FROM (10) TO (20);

-- Types that compare in ways of their own, or not at all; a column that is no more.
CREATE DOMAIN shop.code AS text COLLATE "C" CHECK (VALUE <> '');
CREATE DOMAIN shop.codes AS shop.code[];
CREATE TYPE shop.place AS (spot point, duo shop.pair, note json);
CREATE TABLE shop.things (
    id int PRIMARY KEY,
    gone int,
    n numeric,
    f float8,
    r real,
    doc json,
    spot point,
    area box,
    span int4range,
    days datemultirange,
    grid int[][],
    parts shop.pair[],
    home shop.place,
    mood shop.mood,
    moods shop.mood[],
    code shop.code,
    codes shop.codes,
    raw bytea,
    flags bit(3),
    bits varbit,
    host inet,
    net cidr,
    cost money,
    words tsvector,
    seen timetz,
    lasts interval,
    short char(4),
    total numeric GENERATED ALWAYS AS (n * 2) STORED
);
ALTER TABLE shop.things DROP COLUMN gone;

CREATE AGGREGATE shop.product (numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1');
CREATE FUNCTION shop.pairs(value int) RETURNS SETOF shop.pair LANGUAGE sql IMMUTABLE BEGIN ATOMIC
    SELECT n, 'no ' || n FROM generate_series(1, value % 3) AS n
    UNION ALL SELECT (CASE WHEN value > 2 THEN ROW(NULL, NULL)::shop.pair END).*;
END;
CREATE FUNCTION shop.twice(value int) RETURNS int LANGUAGE sql IMMUTABLE RETURN value * 2;
CREATE OPERATOR shop.@+@ (
    LEFTARG = int, RIGHTARG = int, FUNCTION = pg_catalog.int4pl, COMMUTATOR = OPERATOR(shop.@+@)
);

CREATE VIEW shop.vips (key, label) AS SELECT id, name FROM shop.customers WHERE vip;
CREATE VIEW shop.totals AS
    SELECT customer_id, sum(price) AS total, count(*) AS n
      FROM shop.orders GROUP BY customer_id;
CREATE VIEW shop.ranked AS
    SELECT v.key, v.label, t.total
      FROM shop.vips v LEFT JOIN shop.totals t ON t.customer_id = v.key;
"""

DEEP = 12


def deep_views() -> str:
    """Return views that stand on each other, each with a column alias and a filter of its own."""
    made = ["CREATE VIEW shop.deep1 (k, x1) AS SELECT id, units FROM shop.orders;"]
    made += [
        f"CREATE VIEW shop.deep{n} (k, x{n}) AS SELECT k, x{n - 1} + 1 FROM shop.deep{n - 1}"
        f" WHERE x{n - 1} <> {90 + n};"
        for n in range(2, DEEP + 1)
    ]
    return "\n".join(made)


ROWS = """
INSERT INTO shop.customers VALUES
    (1, 'Ada', 'north', true, '1990-01-31', '2024-03-31 00:30+00', '{a,b}',
     '{"a": 1, "b": {"c": [1, 2]}}', '00000000-0000-0000-0000-000000000001', 'happy', 10.50, 10,
     'ab', '1 mon 2 days', '(1,x)'),
    (2, 'Bob', 'south', false, '1985-06-15', '2024-10-27 00:30+00', '{}', '{"a": 2}',
     '00000000-0000-0000-0000-000000000002', 'sad', 0, 0, 'c', '30 days', '(2,)'),
    (3, 'cyd', 'north', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, NULL, NULL, true, '2000-02-29', '2024-12-31 23:59:59+00', '{a,NULL}', 'null',
     '00000000-0000-0000-0000-000000000001', 'ok', -1.25, 100, 'abc', '-1 day', '(,)'),
    (5, '50%_off', 'south', false, '1990-01-31', '2024-01-01 00:00+00', '{b}', '[1, "a"]', NULL,
     'ok', 10.50, 10, 'ab', '1 day', NULL);
INSERT INTO shop.orders
    (id, customer_id, amount, price, qty, units, edge, big, rate, thin, at, note, raw, doc, spot)
    VALUES
    (1, 1, 10.10, 10.00, 1, 1, 2147483647, 1, 0.5, 0.5, '2024-01-01 10:00', 'x', '\\x00',
     '{"k": 1}', '(1,2)'),
    (2, 1, 5, 5.50, 2, 2, -2147483648, 9000000000000000000, 1.25, 1, '2024-01-02', 'y', '\\xff',
     '[1]', '(0,0)'),
    (3, 2, 'NaN', 1.00, 3, 2, -2147483648, 9000000000000000000, 'NaN', 'NaN', '2024-02-01', 'x',
     NULL, NULL, NULL),
    (4, 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"k": 1}', '(1,2)'),
    (5, NULL, 1, 2.00, 1, 3, -2147483648, -5, 'Infinity', '-0', '2024-02-01', 'x', '\\x00', 'null',
     '(1,2)'),
    (6, 3, 2.50, 2.50, 2, 7, 0, 3, '-Infinity', 2, '2024-03-01', '', '', '{}', '(3,4)'),
    (7, 5, 'Infinity', 9.99, 1, 1, 1, 1, -0.0, 0, '2024-01-01 10:00', 'y', '\\x01', '1', '(0,0)');
INSERT INTO shop.events VALUES
    ('a', 1, 'x'), ('a', 1, 'x'), ('a', 2, NULL), ('b', 1, 'y'), ('b', NULL, 'y'), (NULL, 1, 'x'),
    (NULL, NULL, NULL), (NULL, NULL, NULL), ('c', 3, 'x'), ('d', 0, 'north');
INSERT INTO "Mixed Case"."Order" VALUES
    (1, 2, 'one', 'u', 1, 'g', 1), (2, 1, 'two', 'u', 2, 'g', 2), (1, 1, 'one', NULL, 1, 'h', 1),
    (NULL, 1, NULL, 'v', 3, 'h', NULL), (1, 2, 'one', 'u', 1, 'g', 1);
INSERT INTO shop.readings VALUES
    (1, '2024-01-01', 1.5, 'l'), (1, '2024-01-02', 2.5, 'l'), (2, NULL, NULL, NULL),
    (11, '2024-01-01', 1.5, 'h'), (11, '2024-01-01', 1.5, 'h'), (12, '2024-01-03', -1, NULL);
INSERT INTO shop.things (id, n, f, r, doc, spot, area, span, days, grid, parts, home, mood, moods,
    code, codes, raw, flags, bits, host, net, cost, words, seen, lasts, short) VALUES
    (1, 1.0, 0.0, '-0', '{"a": 1}', '(1,2)', '(1,1),(0,0)', '[1,5)', '{[2024-01-01,2024-02-01)}',
     '{{1,2},{3,NULL}}', '{"(1,x)","(2,)"}', ROW('(1,2)', '(1,x)', '{"k": 1}'), 'sad', '{sad,ok}',
     'a', '{a,b}', '\\x0001', '101', '1', '10.0.0.1/8', '10.0.0.0/8', 12.50, 'a fat cat',
     '12:00+02', '1 mon', 'ab'),
    (2, 1.00, '-0', 0, '{"a":1}', '(1,2)', '(1,1),(0,0)', '[1,4]', '{}', '{}', '{}',
     ROW(NULL, NULL, NULL), 'ok', '{}', 'A', '{}', '', '101', '1', '10.0.0.1/8', '10.0.0.0/8', 12.5,
     'cat fat', '10:00+00', '30 days', 'ab  '),
    (3, 1e40, 'NaN', 'NaN', 'null', NULL, NULL, 'empty', '{[2024-03-01,)}', '{{1}}', NULL, NULL,
     'happy', '{NULL}', 'b', NULL, '\\xff', '000', '', '::1', '::/0', -1, '', '23:59+00', '-1 day',
     ''),
    (5, 'Infinity', '-Infinity', 1, '{"a": 1}', '(1,2)', NULL, '[1,5)',
     '{[2024-01-01,2024-01-31]}', '{1,2}', '{"(1,x)","(2,)"}', ROW('(1,2)', '(1,x)', '{"k": 1}'),
     'sad', '{sad,ok}', 'a', '{a,b}', '\\x0001', '101', '1', '10.0.0.1', '10.0.0.0/8', 12.50,
     'a fat cat', '12:00+02', '1 day', 'ab');
INSERT INTO shop.things (id, n, f, r, doc, spot, area, span, grid, parts, codes, bits, lasts) VALUES
    (4, 'NaN', 'Infinity', 'Infinity', '[1, 2]', '(0,0)', '(2,2),(1,1)', '(,3)', '[0:1]={7,8}',
     '{NULL}', '{a,b}', '10', '24 hours');
INSERT INTO shop.things (id, n) VALUES (6, -1e-50);
"""
