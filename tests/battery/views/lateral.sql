-- LATERAL, set-returning functions, VALUES, grouping sets, recursion.

-- lateral_query: lateral
SELECT c.id, q.n FROM shop.customers c, LATERAL (SELECT count(*) AS n FROM shop.orders o WHERE o.customer_id = c.id) q;

-- lateral_rows: lateral
SELECT c.id, q.id AS o FROM shop.customers c JOIN LATERAL (SELECT o.id FROM shop.orders o WHERE o.customer_id = c.id AND o.units > c.share / 10) q ON true;

-- lateral_left: lateral outer
SELECT c.id, q.s FROM shop.customers c LEFT JOIN LATERAL (SELECT o.units AS s FROM shop.orders o WHERE o.customer_id = c.id AND o.units > 1) q ON q.s < 5;

-- lateral_expression: lateral
SELECT o.id, q.twice, q.thrice FROM shop.orders o, LATERAL (SELECT o.units * 2 AS twice, o.units * 3 AS thrice) q;

-- lateral_nested: lateral nested
SELECT c.id, a.id AS o, b.n FROM shop.customers c, LATERAL (SELECT o.id, o.units FROM shop.orders o WHERE o.customer_id = c.id) a,
    LATERAL (SELECT count(*) AS n FROM shop.events e WHERE e.value = a.units AND e.other IS DISTINCT FROM c.region) b;

-- lateral_union: lateral sets
SELECT o.id, q.v FROM shop.orders o, LATERAL (SELECT o.units AS v UNION SELECT e.value FROM shop.events e WHERE e.kind = o.note) q;

-- lateral_bag: lateral duplicates
SELECT e.kind, q.v FROM shop.events e, LATERAL (SELECT f.value AS v FROM shop.events f WHERE f.kind = e.kind) q;

-- unnest: set-returning
SELECT c.id, t.tag FROM shop.customers c, unnest(c.tags) AS t (tag);

-- unnest_numbered: set-returning ordinality
SELECT c.id, t.tag, t.n FROM shop.customers c CROSS JOIN LATERAL unnest(c.tags) WITH ORDINALITY AS t (tag, n);

-- unnest_left: set-returning outer
SELECT c.id, t.tag FROM shop.customers c LEFT JOIN LATERAL unnest(c.tags) AS t (tag) ON t.tag <> 'b';

-- unnest_several: set-returning
SELECT c.id, t.a, t.b FROM shop.customers c, unnest(c.tags, ARRAY[c.id, c.share]) AS t (a, b);

-- rows_from: set-returning
SELECT c.id, t.a, t.b, t.n FROM shop.customers c, ROWS FROM (unnest(c.tags), generate_series(1, c.id)) WITH ORDINALITY AS t (a, b, n);

-- series: set-returning
SELECT o.id, s.n FROM shop.orders o, generate_series(1, o.units) AS s (n);

-- series_constant: set-returning
SELECT e.kind, s.n FROM shop.events e CROSS JOIN generate_series(1, 2) AS s (n) WHERE e.value = s.n;

-- series_outer: set-returning outer aggregate
SELECT s.n, count(e.kind) AS c FROM generate_series(0, 4) AS s (n) LEFT JOIN shop.events e ON e.value = s.n GROUP BY s.n;

-- in_select: set-returning
SELECT id, unnest(tags) AS tag FROM shop.customers;

-- in_select_several: set-returning
SELECT id, unnest(tags) AS tag, generate_series(1, 3) AS n FROM shop.customers;

-- in_select_nested: set-returning
SELECT id, generate_series(1, generate_series(1, 2)) AS n FROM shop.customers;

-- json_each: set-returning json
SELECT c.id, e.key, e.value FROM shop.customers c, jsonb_each(CASE WHEN jsonb_typeof(c.profile) = 'object' THEN c.profile END) AS e;

-- json_select: set-returning json
SELECT id, (jsonb_each_text(CASE WHEN jsonb_typeof(profile) = 'object' THEN profile END)).key AS key FROM shop.customers;

-- json_record: set-returning json
SELECT c.id, r.a FROM shop.customers c, jsonb_to_record(CASE WHEN jsonb_typeof(c.profile) = 'object' THEN c.profile END) AS r (a int);

-- tag_counts: set-returning aggregate
SELECT t.tag, count(*) AS n FROM shop.customers c, unnest(c.tags) AS t (tag) GROUP BY t.tag;

-- split: set-returning
SELECT o.id, w.word FROM shop.orders o, regexp_split_to_table(coalesce(o.note, 'a b'), ' ') AS w (word);

-- values_list: values
SELECT v.name, count(e.value) AS n FROM (VALUES ('a', 1), ('b', 2), (NULL, 3)) AS v (name, n) LEFT JOIN shop.events e ON e.kind = v.name GROUP BY v.name;

-- values_in: values subquery
SELECT id FROM shop.orders WHERE units IN (VALUES (1), (2));

-- values_lateral: values lateral
SELECT o.id, v.what, v.value FROM shop.orders o, LATERAL (VALUES ('units', o.units), ('edge', o.edge)) AS v (what, value);

-- rollup: grouping-sets
SELECT customer_id, note, sum(units) AS s, GROUPING(customer_id, note) AS g FROM shop.orders GROUP BY ROLLUP (customer_id, note);

-- cube: grouping-sets
SELECT kind, other, count(*) AS n FROM shop.events GROUP BY CUBE (kind, other);

-- grouping_sets: grouping-sets
SELECT kind, value, count(*) AS n, GROUPING(kind) AS g FROM shop.events GROUP BY GROUPING SETS ((kind), (value), ());

-- grouping_mixed: grouping-sets having
SELECT kind, value % 2 AS odd, count(*) AS n FROM shop.events GROUP BY kind, ROLLUP (value % 2) HAVING count(*) > 1;

-- grouping_empty: grouping-sets
SELECT count(*) AS n FROM shop.events WHERE value > 2 GROUP BY ();

-- grouping_distinct: grouping-sets
SELECT kind, count(*) AS n FROM shop.events GROUP BY DISTINCT ROLLUP (kind), ROLLUP (kind);

-- grouping_none: grouping-sets
SELECT kind, other FROM shop.events GROUP BY GROUPING SETS ((kind, other), (kind));

-- grouping_window: grouping-sets window
SELECT kind, sum(value) AS s, rank() OVER (PARTITION BY GROUPING(kind) ORDER BY sum(value) DESC NULLS LAST) AS r FROM shop.events GROUP BY ROLLUP (kind);

-- grouping_join: grouping-sets join
SELECT c.region, o.note, avg(o.price) AS a FROM shop.customers c JOIN shop.orders o ON o.customer_id = c.id GROUP BY CUBE (c.region, o.note);

-- counting: recursive
WITH RECURSIVE n (i) AS (SELECT min(value) FROM shop.events UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n;

-- reachable: recursive
WITH RECURSIVE r (a, b) AS (
    SELECT customer_id, units FROM shop.orders WHERE units IS NOT NULL
    UNION SELECT r.a, o.units FROM r JOIN shop.orders o ON o.customer_id = r.b)
    SELECT a, b FROM r;

-- recursive_closed: recursive anti-join
WITH RECURSIVE r (a, b) AS (
    SELECT id, 0 FROM shop.customers WHERE vip
    UNION SELECT o.units, o.customer_id FROM r JOIN shop.orders o ON o.customer_id = r.a
        WHERE NOT EXISTS (SELECT FROM shop.events e WHERE e.value = o.units))
    SELECT b AS "from", a AS "to", a + b AS both FROM r;

-- recursive_join: recursive join
WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM shop.customers WHERE vip UNION SELECT o.units, r.depth + 1 FROM r JOIN shop.orders o ON o.customer_id = r.id WHERE r.depth < 3)
    SELECT c.name, r.depth FROM r JOIN shop.customers c ON c.id = r.id;

-- recursive_search: recursive search cycle
WITH RECURSIVE r (a, b) AS (SELECT customer_id, units FROM shop.orders UNION ALL SELECT o.customer_id, o.units FROM r JOIN shop.orders o ON o.customer_id = r.b)
    SEARCH DEPTH FIRST BY a, b SET o CYCLE b SET looped USING path
    SELECT a, b, looped FROM r;

-- values_subquery: lateral values subquery
SELECT c.id, v.n FROM shop.customers c CROSS JOIN LATERAL
    (VALUES (c.id::bigint), ((SELECT count(*) FROM shop.orders o WHERE o.customer_id = c.id))) v (n);

-- grouping_correlated: grouping-sets lateral null-key
SELECT c.id, q.kind, q.n, q.g FROM shop.customers c LEFT JOIN LATERAL
    (SELECT e.kind, count(*) AS n, GROUPING(e.kind) AS g FROM shop.events e WHERE e.other = c.region GROUP BY ROLLUP (e.kind)) q ON q.n < 3;

-- lateral_full: lateral outer
SELECT c.id, q.value, q.o FROM shop.customers c, LATERAL
    (SELECT e.value, o.id AS o FROM shop.events e FULL JOIN shop.orders o ON o.units = e.value AND e.other = c.region) q;

-- lateral_right: lateral outer
SELECT c.id, q.note, q.n FROM shop.customers c LEFT JOIN LATERAL
    (SELECT o.note, e.kind AS n FROM shop.events e RIGHT JOIN shop.orders o ON o.units = e.value AND o.customer_id = c.id) q ON q.n IS NOT NULL;

-- lateral_outer_joins: lateral outer aggregate nested
SELECT o.customer_id, (SELECT count(*) FROM shop.events e LEFT JOIN shop.readings r ON r.sensor = e.value AND e.value < max(o.units)
    LEFT JOIN shop.customers c ON c.id = max(o.qty)) AS n FROM shop.orders o GROUP BY o.customer_id;

-- tag_groups: set-returning aggregate
SELECT unnest(tags) AS tag, region, count(*) AS n FROM shop.customers GROUP BY unnest(tags), region;

-- tag_groups_of_key: set-returning aggregate
SELECT id, unnest(tags) AS tag, count(*) AS n FROM shop.customers GROUP BY id, unnest(tags);

-- tag_windows: set-returning window
SELECT id, unnest(tags) AS tag, row_number() OVER (PARTITION BY unnest(tags) ORDER BY id) AS n, generate_series(1, 2) AS g FROM shop.customers;

-- series_of_hours: set-returning time
SELECT c.id, h FROM shop.customers c, generate_series(c.joined, c.joined + interval '2 hours', interval '1 hour') AS h;

-- recursive_marks: recursive cycle
WITH RECURSIVE r (a, b) AS (SELECT customer_id, units FROM shop.orders UNION ALL SELECT o.customer_id, o.units FROM r JOIN shop.orders o ON o.customer_id = r.b)
    CYCLE b SET looped TO 'yes' DEFAULT 'no' USING path
    SELECT a, b, looped, cardinality(path) AS n FROM r;

-- recursive_order: recursive search window
WITH RECURSIVE r (a, b) AS (SELECT customer_id, units FROM shop.orders UNION ALL SELECT o.customer_id, o.units FROM r JOIN shop.orders o ON o.customer_id = r.b AND o.units < r.b)
    SEARCH BREADTH FIRST BY a, b SET o
    SELECT a, b, row_number() OVER (ORDER BY o, a, b) AS n FROM r ORDER BY o;

-- recursive_correlated: recursive subquery
SELECT c.id, (WITH RECURSIVE r (a) AS (SELECT o.units FROM shop.orders o WHERE o.customer_id = c.id
    UNION SELECT o.units FROM r JOIN shop.orders o ON o.customer_id = r.a AND o.note IS DISTINCT FROM c.region)
    SELECT count(*) FROM r) AS n FROM shop.customers c;

-- recursive_lateral: recursive lateral exists
SELECT e.kind, q.a, q.b FROM shop.events e LEFT JOIN LATERAL (WITH RECURSIVE r (a, b) AS (SELECT e.value, 0
    UNION SELECT o.customer_id, o.units FROM r JOIN shop.orders o ON o.units = r.a) SELECT a, b FROM r) q ON q.a > 1
    WHERE EXISTS (WITH RECURSIVE n AS (SELECT e.value AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT FROM n WHERE n.i = 3);

-- recursion_over_other_with: recursive with
WITH few AS (SELECT id, units, qty FROM shop.orders WHERE units > 0), ends (mark) AS (SELECT units FROM few)
    SELECT q.id, e.mark FROM (
        WITH RECURSIVE r AS (
            SELECT few.id FROM few, ends WHERE ends.mark = few.id
            UNION SELECT o.id FROM shop.orders o JOIN r ON r.id = o.units WHERE EXISTS (SELECT FROM few x WHERE x.qty = o.qty))
        SELECT id FROM r) q LEFT JOIN ends e ON e.mark = q.id;

-- recursion_over_other_recursion: recursive with
WITH RECURSIVE a AS (
    SELECT id FROM shop.orders WHERE qty = 1 UNION SELECT o.units FROM shop.orders o JOIN a ON a.id = o.id)
    SELECT a.id, (WITH RECURSIVE b AS (
            SELECT a.id UNION SELECT o.id FROM shop.orders o JOIN b ON b.id = o.units AND o.id > b.id)
        SELECT count(*) FROM b JOIN a x ON x.id = b.id) AS n FROM a;
