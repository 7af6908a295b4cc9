-- Subqueries in FROM, common tables, views, and names that mislead.

-- subquery: subquery
SELECT q.a, q.b FROM (SELECT id AS a, units + 1 AS b FROM shop.orders WHERE units > 0) q WHERE q.b < 10;

-- subquery_alias: subquery alias
SELECT x, y FROM (SELECT kind, value FROM shop.events) AS q (x, y);

-- table_alias: alias
SELECT q.k, v FROM shop.events AS q (k, v);

-- cte_once: cte
WITH big AS (SELECT * FROM shop.orders WHERE units > 1) SELECT id, note FROM big;

-- cte_columns: cte alias
WITH q (a, b) AS (SELECT kind, count(*) FROM shop.events GROUP BY kind) SELECT b, a FROM q WHERE b > 1;

-- cte_many: cte self-join
WITH q AS (SELECT kind, value FROM shop.events WHERE value IS NOT NULL)
    SELECT a.kind, b.kind AS other FROM q a JOIN q b ON a.value = b.value + 1;

-- cte_aggregate_many: cte aggregate
WITH t AS (SELECT customer_id AS c, sum(price) AS s FROM shop.orders GROUP BY 1),
    u AS (SELECT max(s) AS m FROM t)
    SELECT t.c, t.s, u.m FROM t CROSS JOIN u UNION ALL SELECT NULL, s, NULL FROM t;

-- cte_materialized: cte
WITH a AS MATERIALIZED (SELECT id FROM shop.orders), b AS NOT MATERIALIZED (SELECT id FROM a WHERE id > 1)
    SELECT a.id, b.id AS b FROM a LEFT JOIN b ON a.id = b.id;

-- cte_shadows: cte names
WITH events AS (SELECT 1 AS kind UNION ALL SELECT id FROM shop.orders) SELECT kind FROM events;

-- cte_in_subquery: cte subquery
SELECT s.n FROM (WITH x AS (SELECT count(*) AS n FROM shop.events) SELECT n + 1 AS n FROM x) s;

-- view: view
SELECT * FROM shop.vips;

-- view_join: view join
SELECT v.label, o.units FROM shop.vips v JOIN shop.orders o ON o.customer_id = v.key;

-- view_aggregate: view aggregate
SELECT customer_id, total FROM shop.totals WHERE n > 1;

-- view_nested: view outer
SELECT r.*, c.region FROM shop.ranked r LEFT JOIN shop.customers c ON c.id = r.key;

-- view_twice: view self-join
SELECT a.label, b.key FROM shop.vips a CROSS JOIN shop.vips b;

-- view_deep: view deep
SELECT * FROM shop.deep12;

-- view_deep_group: view deep aggregate
SELECT x12 % 2 AS p, count(*) AS n FROM shop.deep12 GROUP BY 1;

-- view_deep_join: view deep join
SELECT a.k, b.x12 FROM shop.deep12 a LEFT JOIN shop.deep12 b ON b.x12 = a.k;

-- subqueries_deep: subquery deep
SELECT z.k, z.n FROM (SELECT y.k, y.n FROM (SELECT x.k, count(*) AS n FROM
    (SELECT e.kind AS k FROM shop.events e JOIN shop.orders o ON o.units = e.value) x GROUP BY x.k) y
    WHERE y.n > 1) z WHERE z.k IS NOT NULL;

-- alias_shadows: alias names
SELECT value AS kind, kind AS value FROM shop.events WHERE kind = 'a';

-- alias_shadows_group: alias aggregate
SELECT kind AS other, max(other) AS kind FROM shop.events GROUP BY kind;

-- unaliased: names
SELECT kind, count(*), max(value), sum(value) FROM shop.events GROUP BY kind;

-- reserved_aliases: names
SELECT "order".kind AS "select", "order".value AS "table" FROM shop.events "order";

-- confusing_aliases: names
SELECT q.kind AS "count", l.value AS weight, r.id AS "old sum", t.units AS "q"
    FROM shop.events q JOIN shop.events l ON q.kind = l.kind JOIN shop.orders r ON r.id = l.value
    LEFT JOIN shop.orders t ON t.id = r.id;

-- confusing_groups: names aggregate
SELECT count AS sum, sum AS count, min(n) AS max, sum(v) AS value FROM
    (SELECT kind AS count, other AS sum, value AS n, value AS v FROM shop.events) key GROUP BY count, sum;

-- two_aggregates_up: aggregate nested join
SELECT c.region, sum(t.n) AS n, max(t.s) AS s FROM shop.customers c LEFT JOIN
    (SELECT o.customer_id, count(*) AS n, sum(e.value) AS s FROM shop.orders o
    LEFT JOIN shop.events e ON e.value = o.qty GROUP BY o.customer_id) t ON t.customer_id = c.id
    GROUP BY c.region HAVING count(*) > 0;

-- distinct_in_join: distinct join
SELECT o.id, d.kind FROM shop.orders o LEFT JOIN (SELECT DISTINCT kind, value FROM shop.events) d
    ON d.value = o.units;

-- wide_case: interval text
SELECT q.id, q.label FROM (SELECT c.id, 'it''s ' || COALESCE(c.name, E'tab\t') || ' 100% {} %s' AS label,
    c.joined + interval '1' year AS y FROM shop.customers c) q WHERE q.y < timestamptz '2026-01-01 00:00+00'
    OR q.y IS NULL;
