-- Subqueries in conditions and as values, correlated or not, under any nesting.

-- exists: subquery exists
SELECT c.id, c.name FROM shop.customers c WHERE EXISTS (SELECT FROM shop.orders o WHERE o.customer_id = c.id);

-- not_exists: subquery exists
SELECT c.id FROM shop.customers c WHERE NOT EXISTS (SELECT 1 FROM shop.orders o WHERE o.customer_id = c.id AND o.units > 1);

-- exists_uncorrelated: subquery exists
SELECT e.kind, e.value FROM shop.events e WHERE EXISTS (SELECT FROM shop.orders WHERE units > 5);

-- exists_inequality: subquery exists
SELECT o.id, o.units FROM shop.orders o WHERE EXISTS (SELECT FROM shop.orders p WHERE p.customer_id = o.customer_id AND p.id <> o.id);

-- exists_bag: subquery exists duplicates
SELECT e.kind, e.other FROM shop.events e WHERE EXISTS (SELECT FROM shop.events f WHERE f.value > e.value);

-- exists_or: subquery exists or
SELECT c.id FROM shop.customers c
    WHERE c.vip OR EXISTS (SELECT FROM shop.orders o WHERE o.customer_id = c.id AND o.note = 'y');

-- exists_value: subquery exists value
SELECT c.id, EXISTS (SELECT FROM shop.orders o WHERE o.customer_id = c.id) AS buys,
    NOT EXISTS (SELECT FROM shop.events e WHERE e.other = c.region) AS silent FROM shop.customers c;

-- exists_grouped: subquery exists aggregate
SELECT c.id FROM shop.customers c
    WHERE EXISTS (SELECT o.units FROM shop.orders o WHERE o.customer_id = c.id GROUP BY o.units HAVING count(*) >= 1);

-- exists_nested: subquery exists nested
SELECT c.id FROM shop.customers c WHERE EXISTS (
    SELECT FROM shop.orders o WHERE o.customer_id = c.id AND NOT EXISTS (
        SELECT FROM shop.events e WHERE e.value = o.units AND e.other = c.region));

-- exists_two_levels: subquery exists nested
SELECT e.kind FROM shop.events e WHERE EXISTS (
    SELECT FROM shop.customers c WHERE c.id > e.value AND EXISTS (
        SELECT FROM shop.orders o WHERE o.customer_id = c.id AND o.units = e.value));

-- in_list: subquery in
SELECT o.id, o.note FROM shop.orders o WHERE o.customer_id IN (SELECT id FROM shop.customers WHERE vip);

-- in_nulls: subquery in null
SELECT kind, value FROM shop.events WHERE value IN (SELECT units FROM shop.orders);

-- not_in: subquery in null
SELECT kind, value FROM shop.events WHERE value NOT IN (SELECT qty FROM shop.orders WHERE qty IS NOT NULL);

-- not_in_nulls: subquery in null
SELECT kind, value FROM shop.events WHERE value NOT IN (SELECT units FROM shop.orders WHERE units > 2 OR units IS NULL);

-- not_in_correlated: subquery in null
SELECT c.id, c.region FROM shop.customers c
    WHERE c.share NOT IN (SELECT o.units FROM shop.orders o WHERE o.customer_id = c.id);

-- in_row: subquery in row
SELECT kind, value FROM shop.events WHERE (kind, value) IN (SELECT kind, value FROM shop.events WHERE other = 'x');

-- not_in_row: subquery in row null
SELECT kind, value FROM shop.events WHERE (kind, value) NOT IN (SELECT region, share FROM shop.customers WHERE id < 4);

-- in_value: subquery in value null
SELECT e.kind, e.value, e.value IN (SELECT units FROM shop.orders) AS known,
    e.value NOT IN (SELECT qty FROM shop.orders) AS unknown FROM shop.events e;

-- in_case: subquery in case
SELECT id, CASE WHEN units IN (SELECT value FROM shop.events WHERE kind = 'a') THEN 'a' ELSE coalesce(note, '-') END AS said
    FROM shop.orders;

-- in_grouped: subquery in aggregate
SELECT id, name FROM shop.customers
    WHERE id IN (SELECT customer_id FROM shop.orders GROUP BY customer_id HAVING sum(units) > 2);

-- in_union: subquery in sets
SELECT id FROM shop.orders WHERE units IN (SELECT value FROM shop.events UNION SELECT share FROM shop.customers);

-- any_less: subquery any
SELECT id, units FROM shop.orders WHERE units < ANY (SELECT value FROM shop.events);

-- all_greater: subquery all
SELECT id, units FROM shop.orders WHERE units >= ALL (SELECT value FROM shop.events WHERE value IS NOT NULL);

-- all_nulls: subquery all null
SELECT kind, value FROM shop.events WHERE value > ALL (SELECT units FROM shop.orders WHERE customer_id = 1);

-- not_all: subquery all
SELECT kind, value FROM shop.events WHERE NOT (value > ALL (SELECT units FROM shop.orders WHERE units < 3));

-- all_value: subquery all value null
SELECT id, units > ALL (SELECT value FROM shop.events WHERE kind = 'b') AS top,
    units = ANY (SELECT value FROM shop.events WHERE kind = 'zz') AS none FROM shop.orders;

-- scalar: subquery scalar aggregate
SELECT id, (SELECT max(value) FROM shop.events) AS most FROM shop.orders;

-- scalar_correlated: subquery scalar aggregate
SELECT c.id, (SELECT count(*) FROM shop.orders o WHERE o.customer_id = c.id) AS n,
    (SELECT sum(o.price) FROM shop.orders o WHERE o.customer_id = c.id) AS total FROM shop.customers c;

-- scalar_where: subquery scalar aggregate
SELECT o.id, o.units FROM shop.orders o
    WHERE o.units > (SELECT avg(p.units) FROM shop.orders p WHERE p.customer_id = o.customer_id);

-- scalar_row: subquery scalar
SELECT o.id, (SELECT c.name FROM shop.customers c WHERE c.id = o.customer_id) AS name FROM shop.orders o;

-- scalar_types: subquery scalar types
SELECT o.id, (SELECT c.tags FROM shop.customers c WHERE c.id = o.customer_id) AS tags,
    (SELECT c.profile FROM shop.customers c WHERE c.id = o.customer_id) AS profile,
    (SELECT c.duo FROM shop.customers c WHERE c.id = o.customer_id) AS duo FROM shop.orders o;

-- scalar_numeric: subquery scalar types
SELECT o.id, (SELECT o.amount || '/' || c.region FROM shop.customers c WHERE c.id = o.customer_id) AS said FROM shop.orders o;

-- scalar_opaque: subquery scalar aggregate
SELECT c.id, (SELECT string_agg(o.note, ',' ORDER BY o.id) FROM shop.orders o WHERE o.customer_id = c.id) AS notes,
    (SELECT count(DISTINCT o.note) FROM shop.orders o WHERE o.customer_id = c.id) AS n,
    (SELECT coalesce(shop.product(o.units), -1) FROM shop.orders o WHERE o.customer_id = c.id) AS p FROM shop.customers c;

-- scalar_inequality: subquery scalar aggregate
SELECT e.kind, e.value, (SELECT count(*) FROM shop.events f WHERE f.value < e.value) AS below FROM shop.events e;

-- scalar_in_call: subquery scalar nested
SELECT id, coalesce((SELECT max(value) FROM shop.events WHERE kind = note), 0) + 1 AS n,
    greatest(units, (SELECT min(share) FROM shop.customers)) AS g FROM shop.orders;

-- scalar_limit: subquery scalar limit
SELECT c.id, (SELECT o.note FROM shop.orders o WHERE o.customer_id = c.id ORDER BY o.id DESC LIMIT 1) AS last FROM shop.customers c;

-- scalar_grouped: subquery scalar aggregate having
SELECT customer_id, sum(units) AS s FROM shop.orders GROUP BY customer_id
    HAVING sum(units) >= (SELECT avg(value) FROM shop.events);

-- scalar_of_group: subquery scalar aggregate
SELECT o.customer_id, count(*) AS n, (SELECT c.name FROM shop.customers c WHERE c.id = o.customer_id) AS name
    FROM shop.orders o GROUP BY o.customer_id;

-- scalar_of_sum: subquery scalar aggregate
SELECT o.customer_id, (SELECT count(*) FROM shop.events e WHERE e.value < sum(o.units)) AS n
    FROM shop.orders o GROUP BY o.customer_id;

-- scalar_in_aggregate: subquery scalar aggregate
SELECT c.region, sum((SELECT count(*) FROM shop.orders o WHERE o.customer_id = c.id)) AS n FROM shop.customers c GROUP BY c.region;

-- scalar_two: subquery scalar row
SELECT c.id FROM shop.customers c
    WHERE (c.id, 1) = (SELECT o.customer_id, min(o.qty) FROM shop.orders o WHERE o.customer_id = c.id GROUP BY o.customer_id);

-- array: subquery array
SELECT c.id, ARRAY(SELECT o.units FROM shop.orders o WHERE o.customer_id = c.id ORDER BY o.id DESC) AS units FROM shop.customers c;

-- array_uncorrelated: subquery array
SELECT kind, ARRAY(SELECT id FROM shop.customers ORDER BY id) AS ids FROM shop.events;

-- in_join: subquery join
SELECT o.id, c.id AS c FROM shop.orders o JOIN shop.customers c
    ON c.id = o.customer_id AND o.units IN (SELECT value FROM shop.events);

-- in_left_join: subquery join outer
SELECT o.id, c.id AS c FROM shop.orders o LEFT JOIN shop.customers c
    ON c.id = o.customer_id AND EXISTS (SELECT FROM shop.events e WHERE e.other = c.region);

-- not_under_or: subquery nested or null
SELECT id FROM shop.orders WHERE NOT (units IN (SELECT value FROM shop.events) AND note = 'x')
    OR customer_id = (SELECT max(id) FROM shop.customers);

-- cte_in_subquery: subquery cte
SELECT c.id, (WITH o AS (SELECT units FROM shop.orders WHERE customer_id = c.id) SELECT max(a.units - b.units) FROM o a, o b) AS spread
    FROM shop.customers c;

-- derived_correlated: subquery nested
SELECT c.id, (SELECT max(q.n) FROM (SELECT o.note, count(*) AS n FROM shop.orders o WHERE o.customer_id = c.id GROUP BY o.note) q) AS n
    FROM shop.customers c;

-- distinct_in_subquery: subquery distinct
SELECT c.region FROM shop.customers c WHERE c.share = ANY (SELECT DISTINCT o.units * 10 FROM shop.orders o WHERE o.customer_id <> c.id);

-- over_subquery: subquery aggregate
SELECT count(*) AS n, sum(q.m) AS m FROM (SELECT o.id, (SELECT count(*) FROM shop.events e WHERE e.value = o.units) AS m FROM shop.orders o) q;

-- no_from: subquery constant
SELECT (SELECT count(*) FROM shop.events) AS events, EXISTS (SELECT FROM shop.orders WHERE id = 3) AS three;

-- left_join_both: subquery join outer
SELECT o.id, c.id AS c FROM shop.orders o LEFT JOIN shop.customers c
    ON c.id = o.customer_id AND EXISTS (SELECT FROM shop.events e WHERE e.value = o.units AND e.other IS DISTINCT FROM c.region);

-- full_join_both: subquery join outer duplicates
SELECT e.kind, e.value, o.id FROM shop.events e FULL JOIN shop.orders o
    ON e.value = o.units AND (SELECT count(*) FROM shop.customers c WHERE c.region = e.other OR c.id = o.customer_id) > 1;

-- in_of_case: subquery in case null
SELECT id FROM shop.orders o WHERE (CASE WHEN o.units > 1 AND o.note = 'x' THEN o.units ELSE o.qty END) IN (SELECT e.value FROM shop.events e WHERE e.kind IS NOT NULL)
    OR NOT (coalesce(o.units, 0) + 1) = ANY (SELECT c.share FROM shop.customers c);

-- exists_first: subquery exists limit
SELECT c.id, EXISTS (SELECT FROM shop.orders o WHERE o.customer_id = c.id LIMIT 1) AS buys FROM shop.customers c
    WHERE EXISTS (SELECT FROM shop.orders o WHERE o.customer_id = c.id LIMIT 1) OR c.vip;

-- any_of_case: subquery any
SELECT o.id FROM shop.orders o
    WHERE CASE WHEN o.units > 1 OR NOT o.qty > 1 THEN o.units ELSE o.edge END = ANY (SELECT e.value FROM shop.events e) OR o.note = 'y';

-- key_subquery: subquery aggregate group
SELECT (SELECT c.region FROM shop.customers c WHERE c.id = o.customer_id) AS region, count(*) AS n FROM shop.orders o GROUP BY 1;

-- key_subquery_rollup: subquery aggregate grouping
SELECT (SELECT c.region FROM shop.customers c WHERE c.id = o.customer_id) AS region, count(*) AS n
    FROM shop.orders o GROUP BY ROLLUP ((SELECT c.region FROM shop.customers c WHERE c.id = o.customer_id));

-- outer_join_inside: subquery outer
SELECT c.id, (SELECT count(e.value) FROM shop.orders o LEFT JOIN shop.events e ON e.value = o.units AND e.other = c.region
    WHERE o.customer_id = c.id) AS n FROM shop.customers c;
