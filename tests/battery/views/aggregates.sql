-- GROUP BY, HAVING, DISTINCT and every kind of aggregate.

-- count_all: aggregate scalar
SELECT count(*) AS n FROM shop.events;

-- scalar_aggregates: aggregate scalar
SELECT count(*) AS n, count(value) AS v, sum(value) AS s, min(value) AS least,
    max(kind) AS most, avg(value) AS mean FROM shop.events;

-- scalar_filtered: aggregate scalar
SELECT sum(units) AS s, count(*) AS n FROM shop.orders WHERE units > 3;

-- group_by: aggregate
SELECT kind, count(*) AS n FROM shop.events GROUP BY kind;

-- group_hidden_key: aggregate bag
SELECT count(*) AS n FROM shop.events GROUP BY kind, other;

-- group_only: aggregate
SELECT kind FROM shop.events GROUP BY kind;

-- group_two_nullable: aggregate null-key
SELECT kind, other, sum(value) AS s FROM shop.events GROUP BY kind, other;

-- all_integers: aggregate int2 int4 int8
SELECT customer_id, sum(qty) AS q, avg(qty) AS qa, sum(units) AS u, avg(units) AS ua,
    sum(big) AS b, avg(big) AS ba, sum(edge) AS e,
    min(big) AS lo, max(qty) AS hi, count(big) AS n
    FROM shop.orders GROUP BY customer_id;

-- numerics: aggregate numeric nan infinity
SELECT customer_id, sum(amount) AS a, avg(amount) AS aa, min(amount) AS lo, max(amount) AS hi,
    sum(price) AS p, avg(price) AS pa, sum(price)::text AS shown, avg(price)::text AS mean
    FROM shop.orders GROUP BY customer_id;

-- numeric_total: aggregate scalar nan infinity
SELECT sum(amount) AS a, sum(price) AS p, avg(price) AS m FROM shop.orders;

-- floats: aggregate float nan infinity
SELECT customer_id, sum(rate) AS s, avg(rate) AS a, min(rate) AS lo, max(rate) AS hi,
    sum(thin) AS t, max(thin) AS tm, count(rate) AS n FROM shop.orders GROUP BY customer_id;

-- filters: aggregate filter
SELECT kind, count(*) FILTER (WHERE value > 1) AS many, sum(value) FILTER (WHERE other = 'x') AS x,
    avg(value) FILTER (WHERE value IS NOT NULL) AS a, max(value) FILTER (WHERE other IS NULL) AS m,
    count(value) FILTER (WHERE kind LIKE '%a%') AS c FROM shop.events GROUP BY kind;

-- safe_filter: aggregate filter error
SELECT kind, sum(6 / value) FILTER (WHERE value <> 0) AS s,
    count(6 / value) FILTER (WHERE value <> 0) AS n FROM shop.events GROUP BY kind;

-- distinct_aggregates: aggregate distinct
SELECT kind, count(DISTINCT value) AS n, sum(DISTINCT value) AS s, avg(DISTINCT value) AS a,
    string_agg(DISTINCT other, ',' ORDER BY other) AS o FROM shop.events GROUP BY kind;

-- distinct_counts: aggregate distinct filter
SELECT kind, count(DISTINCT value) AS n, sum(DISTINCT value) FILTER (WHERE other IS NOT NULL) AS s,
    avg(DISTINCT value) AS a, count(DISTINCT upper(other)) AS o, count(value) AS c, max(DISTINCT value) AS m
    FROM shop.events GROUP BY kind;

-- distinct_counts_alone: aggregate distinct scalar
SELECT count(DISTINCT price) AS p, count(DISTINCT note) AS n, sum(DISTINCT units) AS u, sum(qty) AS q FROM shop.orders;

-- distinct_counts_join: aggregate distinct join having
SELECT c.region, count(DISTINCT o.note) AS n, avg(DISTINCT o.units) AS u FROM shop.customers c
    LEFT JOIN shop.orders o ON o.customer_id = c.id GROUP BY c.region HAVING count(DISTINCT o.units) <> 1;

-- ordered_aggregates: aggregate order-by
SELECT kind, string_agg(other, ',' ORDER BY other DESC, value) AS t,
    array_agg(value ORDER BY value NULLS FIRST) AS a,
    (array_agg(other ORDER BY value DESC NULLS LAST, other))[1] AS top,
    jsonb_agg(value ORDER BY value) AS j FROM shop.events GROUP BY kind;

-- ordered_sets: aggregate within-group
SELECT kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY value) AS median,
    percentile_disc(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY value) AS quartiles,
    mode() WITHIN GROUP (ORDER BY other) AS mode,
    rank(1) WITHIN GROUP (ORDER BY value) AS rank,
    dense_rank(2) WITHIN GROUP (ORDER BY value DESC) AS dense
    FROM shop.events GROUP BY kind;

-- booleans_and_bits: aggregate bool bit
SELECT region, bool_and(vip) AS a, bool_or(vip) AS o, every(share > 5) AS e, bit_or(id) AS b,
    bit_and(share::int) AS ba, bit_xor(id) AS x FROM shop.customers GROUP BY region;

-- statistics: aggregate statistics
SELECT customer_id, stddev(qty) AS s, var_pop(units) AS v, variance(price) AS w,
    round(regr_slope(units, qty)::numeric, 6) AS slope, regr_count(units, qty) AS n,
    round(corr(units, qty)::numeric, 6) AS c FROM shop.orders GROUP BY customer_id;

-- objects: aggregate jsonb user-aggregate
SELECT customer_id, jsonb_object_agg(id, note) AS o, shop.product(price) AS p,
    json_agg(note ORDER BY id) AS j, count(o) AS rows, max(to_jsonb(o) ->> 'id') AS m
    FROM shop.orders o GROUP BY customer_id;

-- extrema_of_types: aggregate min max
SELECT region, min(born) AS b, max(joined) AS j, min(mood) AS m, max(tags) AS t, max(span) AS s,
    min(credit) AS c, max(initial) AS i, min(name COLLATE "C") AS n
    FROM shop.customers GROUP BY region;

-- expressions_over_aggregates: aggregate expression
SELECT customer_id, sum(units) * 2 + count(*) AS a, sum(price) / NULLIF(count(price), 0) AS m,
    CASE WHEN count(*) > 1 THEN max(note) ELSE min(note) || '?' END AS n,
    COALESCE(sum(units), 0)::text || '/' || count(*)::text AS t
    FROM shop.orders GROUP BY customer_id;

-- case_sum: aggregate case
SELECT note, sum(CASE WHEN units > 2 THEN price ELSE 0 END) AS s,
    sum(CASE WHEN note = 'x' THEN 1 END) AS x FROM shop.orders GROUP BY note;

-- group_by_expressions: aggregate group-expression
SELECT lower(kind) AS k, value % 2 AS parity, count(*) AS n, value % 2 + 1 AS next
    FROM shop.events GROUP BY lower(kind), value % 2;

-- group_by_case: aggregate group-expression
SELECT CASE WHEN value > 1 THEN 'big' ELSE 'small' END AS size, date_trunc('month', day) AS m,
    sum(v) AS s FROM (SELECT e.value, r.day, r.sensor AS v FROM shop.events e
    JOIN shop.readings r ON r.sensor = e.value) q
    GROUP BY CASE WHEN value > 1 THEN 'big' ELSE 'small' END, 2;

-- group_by_position: aggregate
SELECT other, kind, max(value) AS m FROM shop.events GROUP BY 2, 1;

-- group_by_constant: aggregate
SELECT 'all' AS k, count(*) AS n FROM shop.events GROUP BY 1;

-- group_by_key: aggregate dependent-columns
SELECT c.id, c.name, c.region || '!' AS r, count(o.id) AS n, sum(o.price) AS s
    FROM shop.customers c LEFT JOIN shop.orders o ON o.customer_id = c.id GROUP BY c.id;

-- group_by_types: aggregate group-types
SELECT tags, profile, code, mood, span, duo, count(*) AS n FROM shop.customers
    GROUP BY tags, profile, code, mood, span, duo;

-- group_by_array: aggregate group-types
SELECT tags, count(*) AS n FROM shop.customers GROUP BY tags;

-- group_by_float: aggregate group-types
SELECT rate, count(*) AS n, sum(units) AS s FROM shop.orders GROUP BY rate;

-- group_by_numeric: aggregate group-types
SELECT amount, count(*) AS n FROM shop.orders GROUP BY amount;

-- having: having
SELECT kind, sum(value) AS s FROM shop.events GROUP BY kind HAVING count(*) > 2;

-- having_many: having
SELECT customer_id FROM shop.orders GROUP BY customer_id
    HAVING sum(price) > 5 AND max(units) < 100 OR customer_id IS NULL;

-- having_alone: having scalar
SELECT 1 AS one FROM shop.events HAVING count(*) > 5;

-- having_scalar: having scalar
SELECT count(*) AS n FROM shop.events HAVING count(*) > 5 AND max(value) IS NOT NULL;

-- distinct: distinct
SELECT DISTINCT kind, other FROM shop.events;

-- distinct_expression: distinct
SELECT DISTINCT value IS NULL AS n, upper(other) AS u FROM shop.events;

-- distinct_groups: distinct aggregate
SELECT DISTINCT count(*) AS n FROM shop.events GROUP BY kind;

-- distinct_join: distinct join
SELECT DISTINCT c.region FROM shop.customers c JOIN shop.orders o ON o.customer_id = c.id;

-- partition_groups: partition aggregate
SELECT day, count(*) AS n, max(value) AS m FROM shop.readings GROUP BY day;

-- aggregate_of_aggregate: aggregate nested
SELECT n, count(*) AS groups, sum(s) AS total, max(s) AS most
    FROM (SELECT kind, count(*) AS n, sum(value) AS s FROM shop.events GROUP BY kind) q GROUP BY n;

-- scalar_of_aggregate: aggregate nested scalar
SELECT max(n) AS m, avg(s) AS a FROM
    (SELECT kind, count(*) AS n, sum(value) AS s FROM shop.events GROUP BY kind HAVING count(*) > 1) q;

-- aggregate_join: aggregate join
SELECT c.name, t.total, t.n FROM shop.customers c JOIN
    (SELECT customer_id, sum(price) AS total, count(*) AS n FROM shop.orders GROUP BY customer_id) t
    ON t.customer_id = c.id;

-- aggregate_left_join: aggregate join outer
SELECT c.id, t.total, COALESCE(t.n, 0) AS n FROM shop.customers c LEFT JOIN
    (SELECT customer_id, sum(price) AS total, count(*) AS n FROM shop.orders GROUP BY customer_id) t
    ON t.customer_id = c.id;

-- aggregate_full_join: aggregate join outer
SELECT a.kind, a.n, b.kind AS other_kind, b.m FROM
    (SELECT kind, count(*) AS n FROM shop.events GROUP BY kind) a FULL JOIN
    (SELECT other AS kind, max(value) AS m FROM shop.events GROUP BY other) b ON a.kind = b.kind;

-- total_beside_rows: aggregate scalar join
SELECT e.kind, e.value, t.total FROM shop.events e
    CROSS JOIN (SELECT sum(value) AS total FROM shop.events) t;

-- having_join: having join
SELECT o.id, q.n FROM shop.orders o JOIN
    (SELECT kind, max(value) AS v, count(*) AS n FROM shop.events GROUP BY kind HAVING count(*) > 1) q
    ON q.v = o.units;

-- mixed_case_groups: mixed-case aggregate
SELECT "Group", "A", sum(a) AS "Sum", count(DISTINCT "select") AS "count", max("from") AS "max"
    FROM "Mixed Case"."Order" GROUP BY "Group", "A";

-- scale_of_sums: aggregate numeric scale
SELECT customer_id, sum(amount)::text AS s, avg(amount)::text AS a, sum(price * 1.000)::text AS p
    FROM shop.orders GROUP BY customer_id;

-- scale_of_sums_in_bag: aggregate numeric scale bag
SELECT e.kind, t.s, t.s::text AS shown
    FROM shop.events e LEFT JOIN (SELECT qty, sum(amount) AS s FROM shop.orders GROUP BY qty) t ON t.qty = e.value;

-- numeric_keys_in_bag: aggregate group-types bag
SELECT e.kind, t.amount, t.n
    FROM shop.events e JOIN (SELECT amount, count(*) AS n FROM shop.orders GROUP BY amount) t ON t.n = e.value;

-- types_of_keys_in_bag: aggregate distinct group-types bag
SELECT e.kind, t.tags, t.profile, t.span, t.duo
    FROM shop.events e JOIN (SELECT DISTINCT tags, profile, span, duo FROM shop.customers) t ON e.value < 3;

-- functions_of_keys: aggregate group-expression
SELECT upper(kind) AS u, length(kind) AS n, abs(value) AS a, COALESCE(kind, 'none') AS c, count(*) AS rows
    FROM shop.events GROUP BY kind, value HAVING abs(value) < 100 OR lower(kind) IS NULL;

-- functions_of_group_expressions: aggregate group-expression
SELECT abs(abs(value)) AS a, upper(lower(kind)) AS u, ((kind || 'x') || 'y') AS t, value::text || '!' AS v, count(*) AS rows
    FROM shop.events GROUP BY abs(value), lower(kind), kind || 'x', value::text;

-- functions_of_dependents: aggregate dependent-columns
SELECT abs(c.id) AS a, upper(c.name) AS n, min(o.price) AS p
    FROM shop.customers c LEFT JOIN shop.orders o ON o.customer_id = c.id GROUP BY c.id;

-- fixed_scales: aggregate numeric scale
SELECT customer_id, sum(price * qty)::text AS revenue, avg(price * qty)::text AS mean,
       sum(price * (1 - price) + 0.125)::text AS mixed, avg(- price * units)::text AS negative,
       sum(price * price) FILTER (WHERE qty > 1)::text AS squares,
       sum(CASE WHEN qty = 1 THEN price ELSE 0.00 END)::text AS chosen,
       avg(COALESCE(price, 0))::text AS padded, sum(price::numeric(8, 4) + units)::text AS rounded
    FROM shop.orders GROUP BY customer_id;

-- fixed_scales_alone: aggregate numeric scale scalar
SELECT sum(price * units)::text AS s, avg(price + credit)::text AS a, sum(abs(credit) - price) AS d,
       sum(NULLIF(price, 1.00) * 2)::text AS n
    FROM shop.orders o JOIN shop.customers c ON c.id = o.customer_id;

-- fixed_scales_in_bag: aggregate numeric scale bag
SELECT e.kind, t.s, t.s::text AS shown, t.a::text AS mean FROM shop.events e
    LEFT JOIN (SELECT qty, sum(price * units) AS s, avg(price * price) AS a FROM shop.orders GROUP BY qty) t
    ON t.qty = e.value;
