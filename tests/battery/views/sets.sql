-- UNION, INTERSECT and EXCEPT, with and without ALL.

-- union_all: union-all
SELECT kind FROM shop.events UNION ALL SELECT note FROM shop.orders;

-- union_distinct: union
SELECT kind FROM shop.events UNION SELECT note FROM shop.orders;

-- intersect: intersect
SELECT value FROM shop.events INTERSECT SELECT units FROM shop.orders;

-- intersect_all: intersect-all
SELECT value FROM shop.events INTERSECT ALL SELECT units FROM shop.orders;

-- except_distinct: except
SELECT value FROM shop.events EXCEPT SELECT units FROM shop.orders;

-- except_all: except-all
SELECT value FROM shop.events EXCEPT ALL SELECT units FROM shop.orders;

-- except_all_rows: except-all
SELECT kind, other FROM shop.events EXCEPT ALL SELECT other, kind FROM shop.events;

-- nested_sets: nested
(SELECT kind, value FROM shop.events UNION ALL SELECT note, units FROM shop.orders)
    EXCEPT ALL (SELECT name, id FROM shop.customers INTERSECT SELECT kind, value FROM shop.events);

-- precedence: nested
SELECT value FROM shop.events UNION SELECT units FROM shop.orders
    INTERSECT SELECT id FROM shop.customers EXCEPT SELECT sensor FROM shop.readings;

-- set_of_sets: nested
((SELECT kind FROM shop.events EXCEPT SELECT note FROM shop.orders)
    UNION ALL (SELECT note FROM shop.orders EXCEPT ALL SELECT kind FROM shop.events))
    INTERSECT ALL (SELECT other FROM shop.events UNION ALL SELECT region FROM shop.customers);

-- mixed_types: cast
SELECT qty AS v, 'a' AS t FROM shop.orders UNION SELECT big, note FROM shop.orders;

-- mixed_types_all: cast
SELECT units AS v, 1 AS t FROM shop.orders UNION ALL SELECT amount, 2.5 FROM shop.orders;

-- mixed_numeric: cast numeric
SELECT price AS v FROM shop.orders EXCEPT ALL SELECT amount FROM shop.orders;

-- mixed_text: cast bpchar
SELECT initial::text AS v FROM shop.customers INTERSECT SELECT name FROM shop.customers;

-- null_column: cast
SELECT kind, NULL AS n FROM shop.events UNION ALL SELECT NULL, units FROM shop.orders;

-- unions_of_aggregates: aggregate
SELECT kind, count(*) AS n FROM shop.events GROUP BY kind
    UNION ALL SELECT note, max(units) FROM shop.orders GROUP BY note
    UNION ALL SELECT 'total', count(*) FROM shop.orders;

-- aggregate_of_union: aggregate
SELECT k, count(*) AS n, sum(v) AS s FROM
    (SELECT kind AS k, value AS v FROM shop.events UNION ALL SELECT note, units FROM shop.orders) q GROUP BY k;

-- aggregate_of_except: aggregate
SELECT k, count(*) AS n FROM
    (SELECT kind AS k, value FROM shop.events EXCEPT ALL SELECT note, units FROM shop.orders) q GROUP BY k;

-- join_of_sets: join
SELECT a.v, c.name FROM
    (SELECT value AS v FROM shop.events INTERSECT SELECT id FROM shop.orders) a
    LEFT JOIN shop.customers c ON c.id = a.v;

-- left_join_of_sets: outer
SELECT c.id, q.v, q.w FROM shop.customers c LEFT JOIN
    (SELECT value AS v, kind AS w FROM shop.events EXCEPT ALL SELECT units, note FROM shop.orders) q ON q.v = c.id;

-- distinct_of_union: distinct
SELECT DISTINCT v % 2 AS p FROM (SELECT value AS v FROM shop.events UNION ALL SELECT id FROM shop.orders) q;

-- union_of_same: union-all
SELECT * FROM shop.events UNION ALL SELECT * FROM shop.events;

-- except_of_same: except-all
SELECT * FROM shop.events EXCEPT ALL SELECT * FROM shop.events;

-- union_with_constant: union
SELECT kind FROM shop.events UNION SELECT 'constant';

-- except_constant: except
SELECT kind, value FROM shop.events EXCEPT SELECT 'a', 1;

-- filter_over_set: where
SELECT * FROM (SELECT id, units FROM shop.orders UNION SELECT id, share FROM shop.customers) q
    WHERE q.units > 1;

-- union_json: json
SELECT doc, spot FROM shop.orders UNION ALL SELECT doc, spot FROM shop.orders WHERE units = 1;

-- union_types: types
SELECT tags, profile, mood FROM shop.customers UNION SELECT NULL, '{}'::jsonb, 'ok';

-- partitioned_set: partition
SELECT sensor FROM shop.readings EXCEPT ALL SELECT value FROM shop.events;
