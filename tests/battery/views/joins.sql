-- Joins of every kind and condition.

-- inner_join: join
SELECT o.id, c.name, o.price FROM shop.orders o JOIN shop.customers c ON c.id = o.customer_id;

-- implicit_join: join implicit
SELECT o.id, c.region FROM shop.orders o, shop.customers c
    WHERE c.id = o.customer_id AND o.units > 1;

-- cross_join: cross
SELECT e.kind, r.sensor FROM shop.events e CROSS JOIN shop.readings r;

-- left_join: outer
SELECT c.id, c.name, o.id AS order_id, o.units
    FROM shop.customers c LEFT JOIN shop.orders o ON o.customer_id = c.id;

-- left_join_filtered: outer
SELECT c.id, o.id AS order_id FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id AND o.units > 2 AND c.vip;

-- left_join_where_null: outer
SELECT c.id, c.region FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id WHERE o.id IS NULL;

-- right_join: outer
SELECT e.kind, e.value, o.id FROM shop.events e RIGHT JOIN shop.orders o ON o.units = e.value;

-- full_join: outer
SELECT e.kind, e.value, o.id, o.units
    FROM shop.events e FULL JOIN shop.orders o ON o.units = e.value;

-- full_join_keyed: outer
SELECT c.id AS customer, o.id AS order_id, c.name
    FROM shop.customers c FULL JOIN shop.orders o ON o.id = c.id;

-- left_join_on_key: outer
SELECT o.id, c.name FROM shop.orders o LEFT JOIN shop.customers c ON c.id = o.customer_id;

-- left_join_inequality: outer inequality
SELECT o.id, e.kind FROM shop.orders o LEFT JOIN shop.events e ON e.value > o.units;

-- inner_inequality: join inequality
SELECT a.id AS a, b.id AS b FROM shop.orders a JOIN shop.orders b ON a.price < b.price;

-- or_condition: join or
SELECT c.id, e.kind FROM shop.customers c
    JOIN shop.events e ON e.other = c.region OR e.value = c.id;

-- left_or_condition: outer or
SELECT c.id, e.kind FROM shop.customers c
    LEFT JOIN shop.events e ON e.other = c.region OR e.value = c.id;

-- null_safe_join: join is-distinct-from
SELECT a.kind, b.value FROM shop.events a
    LEFT JOIN shop.events b ON a.kind IS NOT DISTINCT FROM b.other;

-- full_join_true: outer
SELECT c.id, r.sensor FROM shop.customers c
    FULL JOIN shop.readings r ON c.id = r.sensor AND true;

-- left_join_true: outer
SELECT c.id, e.kind FROM shop.customers c LEFT JOIN shop.events e ON true;

-- left_join_false: outer
SELECT c.id, e.kind FROM shop.customers c LEFT JOIN shop.events e ON false;

-- left_join_one_sided: outer
SELECT c.id, e.kind FROM shop.customers c LEFT JOIN shop.events e ON c.vip;

-- natural_join: natural
SELECT * FROM (SELECT value, kind FROM shop.events) a
    NATURAL JOIN (SELECT units AS value, id FROM shop.orders) b;

-- natural_left: natural outer
SELECT value, kind, id FROM (SELECT value, kind FROM shop.events) a
    NATURAL LEFT JOIN (SELECT units::bigint AS value, id FROM shop.orders) b;

-- using_inner: using
SELECT id, c.name, o.units FROM shop.customers c JOIN shop.orders o USING (id);

-- using_left: using outer
SELECT id, c.id AS left_id, o.id AS right_id, o.note FROM shop.customers c LEFT JOIN shop.orders o USING (id);

-- using_right: using outer
SELECT id, c.name, o.id AS o FROM shop.customers c RIGHT JOIN shop.orders o USING (id);

-- using_full: using outer
SELECT id, c.name, o.units, c.id AS c, o.id AS o FROM shop.customers c FULL JOIN shop.orders o USING (id);

-- using_full_chain: using outer
SELECT id, c.name, o.units, x.k
    FROM shop.customers c FULL JOIN shop.orders o USING (id)
    FULL JOIN (SELECT value AS id, kind AS k FROM shop.events) x USING (id);

-- using_alias: using alias
SELECT u.id, c.id AS own FROM shop.customers c JOIN shop.orders o USING (id) AS u WHERE u.id > 1;

-- join_alias: alias
SELECT j.a, j.b, j.name FROM
    (shop.customers c JOIN (SELECT id, units FROM shop.orders) o ON o.id = c.id) AS j (a, name, b);

-- using_mixed_types: using cast
SELECT value, a.kind FROM (SELECT value::bigint AS value, kind FROM shop.events) a
    FULL JOIN (SELECT qty AS value FROM shop.orders) b USING (value);

-- self_join: self-join
SELECT a.id, b.id AS other FROM shop.orders a
    JOIN shop.orders b ON b.customer_id = a.customer_id AND b.id > a.id;

-- self_left_join: self-join outer
SELECT a.kind, a.value, b.kind AS other FROM shop.events a
    LEFT JOIN shop.events b ON b.value = a.value + 1;

-- self_join_bag: self-join bag
SELECT a.kind, b.other FROM shop.events a JOIN shop.events b ON a.kind = b.kind;

-- three_way: join
SELECT c.name, o.id, e.kind FROM shop.customers c
    JOIN shop.orders o ON o.customer_id = c.id JOIN shop.events e ON e.value = o.units;

-- chained_left: outer chain
SELECT c.id, o.id AS o, e.kind, r.sensor FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id
    LEFT JOIN shop.events e ON e.value = o.units
    LEFT JOIN shop.readings r ON r.sensor = e.value;

-- chained_left_minmax: outer chain aggregate
SELECT c.region, min(o.price) AS least, max(e.value) AS most, count(e.kind) AS n
    FROM shop.customers c LEFT JOIN shop.orders o ON o.customer_id = c.id
    LEFT JOIN shop.events e ON e.value = o.units GROUP BY c.region;

-- mixed_outer: outer chain
SELECT c.id, o.id AS o, e.kind, e.other FROM shop.customers c
    RIGHT JOIN shop.orders o ON o.customer_id = c.id
    FULL JOIN shop.events e ON e.value = o.units AND e.kind <> 'b';

-- nested_outer: outer nested
SELECT c.id, o.id AS o, e.kind FROM shop.customers c
    LEFT JOIN (shop.orders o JOIN shop.events e ON e.value = o.units) ON o.customer_id = c.id;

-- outer_over_inner_condition: outer inner
SELECT c.id, o.id AS o, e.kind FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id JOIN shop.events e ON e.other = c.region;

-- five_way: join
SELECT c.id, o.id AS o, e.kind, r.label, m."A" FROM shop.customers c
    JOIN shop.orders o ON o.customer_id = c.id JOIN shop.events e ON e.value = o.units
    JOIN shop.readings r ON r.sensor = e.value JOIN "Mixed Case"."Order" m ON m."A" = r.sensor;

-- five_way_aggregate: join aggregate
SELECT c.region, count(*) AS n, sum(o.units) AS units, max(e.kind) AS kind
    FROM shop.customers c JOIN shop.orders o ON o.customer_id = c.id
    JOIN shop.events e ON e.value = o.qty, shop.readings r, "Mixed Case"."Order" m
    WHERE r.sensor = e.value AND m.a = r.sensor GROUP BY c.region;

-- whole_row_padded: outer whole-row
SELECT c.id, o AS row, o IS NULL AS no_row, to_jsonb(e) AS event FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id LEFT JOIN shop.events e ON e.value = c.id;

-- join_json: outer json
SELECT c.id, o.doc, o.spot FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id;

-- mixed_case_join: mixed-case join
SELECT x."A", y.a, x."select", y."from" FROM "Mixed Case"."Order" x
    LEFT JOIN "Mixed Case"."Order" y ON x."A" = y.a AND x."Group" = y."Group";

-- expression_join: join expression
SELECT o.id, e.kind FROM shop.orders o
    JOIN shop.events e ON e.value + 1 = o.units * 2 - o.qty AND lower(e.kind) < o.note;

-- array_join: join array
SELECT c.id, e.kind FROM shop.customers c JOIN shop.events e ON e.kind = ANY (c.tags);

-- constant_join: join constant
SELECT o.id, one.k FROM (SELECT 1 AS k, 'x' AS v) one LEFT JOIN shop.orders o ON o.units = one.k;

-- one_column_twice: join aggregate
SELECT o.id, t.n
    FROM (SELECT kind, count(*) AS n FROM shop.events GROUP BY kind) t
    JOIN shop.orders o ON o.qty::bigint = t.n AND o.customer_id::bigint = t.n AND o.id::bigint >= t.n;

-- equated_twice: outer aggregate
SELECT o.id, t.value, t.n
    FROM shop.orders o LEFT JOIN (SELECT value, count(*) AS n FROM shop.events GROUP BY value) t
    ON t.value = o.customer_id AND t.value = o.units;

-- equated_twice_back: outer aggregate
SELECT c.id, t.a, t.b, t.n
    FROM (SELECT customer_id AS a, units AS b, count(*) AS n FROM shop.orders GROUP BY 1, 2) t
    FULL JOIN shop.customers c ON c.id = t.a AND c.id = t.b;

-- five_chained_left: outer chain
SELECT c.id, o.id AS o, e.kind, r.label, m."A", o2.id AS o2 FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id
    LEFT JOIN shop.events e ON e.value = o.units
    LEFT JOIN shop.readings r ON r.sensor = e.value
    LEFT JOIN "Mixed Case"."Order" m ON m.a = r.sensor
    LEFT JOIN shop.orders o2 ON o2.id = m."A";
