-- Window functions: frames, ties, several windows in one query.

-- row_number: window
SELECT id, row_number() OVER (PARTITION BY customer_id ORDER BY id) AS n FROM shop.orders;

-- ranks: window ties
SELECT kind, value, rank() OVER (PARTITION BY kind ORDER BY value) AS r, dense_rank() OVER (PARTITION BY kind ORDER BY value) AS d,
    percent_rank() OVER (PARTITION BY kind ORDER BY value) AS p, cume_dist() OVER (PARTITION BY kind ORDER BY value) AS c FROM shop.events;

-- running: window aggregate
SELECT id, sum(units) OVER (PARTITION BY customer_id ORDER BY id) AS s, avg(price) OVER (PARTITION BY customer_id ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a
    FROM shop.orders;

-- whole_partition: window aggregate
SELECT id, count(*) OVER (PARTITION BY customer_id) AS n, max(units) OVER (PARTITION BY customer_id) AS m, sum(big) OVER () AS s FROM shop.orders;

-- no_partition: window
SELECT kind, value, count(*) OVER (ORDER BY value) AS n FROM shop.events;

-- lag_lead: window
SELECT id, lag(units) OVER w AS before, lead(units, 2, 0) OVER w AS after, first_value(note) OVER w AS first,
    last_value(note) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS last, nth_value(note, 2) OVER w AS second
    FROM shop.orders WINDOW w AS (PARTITION BY customer_id ORDER BY id);

-- ntile: window
SELECT id, ntile(3) OVER (ORDER BY id) AS tile FROM shop.customers;

-- frames: window frame
SELECT id, sum(units) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS around,
    sum(units) OVER (ORDER BY units RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS near,
    count(*) OVER (ORDER BY units GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS groups FROM shop.orders;

-- filter_window: window filter
SELECT id, count(*) FILTER (WHERE note = 'x') OVER (PARTITION BY customer_id) AS x FROM shop.orders;

-- several: window
SELECT id, rank() OVER (PARTITION BY customer_id ORDER BY units DESC NULLS LAST) AS a, rank() OVER (PARTITION BY note ORDER BY id) AS b,
    rank() OVER (ORDER BY price, id) AS c FROM shop.orders;

-- expression: window
SELECT id, 100 * units / nullif(sum(units) OVER (PARTITION BY customer_id % 2), 0) AS share FROM shop.orders;

-- over_aggregate: window aggregate
SELECT customer_id, sum(units) AS s, rank() OVER (ORDER BY sum(units) DESC NULLS LAST) AS r, sum(sum(units)) OVER () AS t
    FROM shop.orders GROUP BY customer_id;

-- filter_above: window filter
SELECT q.id, q.n FROM (SELECT id, row_number() OVER (PARTITION BY customer_id ORDER BY id DESC) AS n FROM shop.orders) q WHERE q.n <= 1;

-- join_window: window join
SELECT c.name, o.id, row_number() OVER (PARTITION BY c.region ORDER BY o.id) AS n
    FROM shop.customers c JOIN shop.orders o ON o.customer_id = c.id;

-- window_distinct: window distinct
SELECT DISTINCT kind, count(*) OVER (PARTITION BY kind) AS n FROM shop.events;

-- window_union: window sets
SELECT id, row_number() OVER (ORDER BY id) AS n FROM shop.orders UNION ALL SELECT id, rank() OVER (ORDER BY share) FROM shop.customers;

-- aggregate_over_window: window aggregate
SELECT q.n, count(*) AS c FROM (SELECT row_number() OVER (PARTITION BY customer_id ORDER BY id) AS n FROM shop.orders) q GROUP BY q.n;

-- window_subquery: window subquery
SELECT id, sum((SELECT count(*) FROM shop.events e WHERE e.value = o.units)) OVER (PARTITION BY customer_id) AS n FROM shop.orders o;

-- window_array: window aggregate
SELECT id, array_agg(id) OVER (PARTITION BY customer_id ORDER BY id) AS ids FROM shop.orders;

-- window_correlated: window subquery lateral
SELECT c.id, q.id AS o, q.n FROM shop.customers c, LATERAL (SELECT o.id, row_number() OVER (ORDER BY o.units DESC, o.id) AS n FROM shop.orders o WHERE o.customer_id = c.id) q;

-- distinct_on: distinct-on
SELECT DISTINCT ON (customer_id) customer_id, id, units FROM shop.orders ORDER BY customer_id, units DESC NULLS LAST, id;

-- distinct_on_bag: distinct-on duplicates
SELECT DISTINCT ON (kind) kind, value FROM shop.events ORDER BY kind, value;

-- distinct_on_join: distinct-on join
SELECT DISTINCT ON (c.region) c.region, o.id FROM shop.customers c LEFT JOIN shop.orders o ON o.customer_id = c.id ORDER BY c.region, o.id DESC NULLS LAST;

-- top: limit
SELECT id, units FROM shop.orders ORDER BY units DESC NULLS LAST, id LIMIT 3;

-- top_offset: limit
SELECT id FROM shop.orders ORDER BY id OFFSET 2 LIMIT 2;

-- offset: limit
SELECT kind, value FROM shop.events ORDER BY value, kind, other OFFSET 4;

-- ties: limit ties
SELECT kind, value FROM shop.events ORDER BY value FETCH FIRST 3 ROWS WITH TIES;

-- top_hidden: limit
SELECT note FROM shop.orders ORDER BY price DESC NULLS LAST, id FETCH FIRST 2 ROWS ONLY;

-- top_grouped: limit aggregate
SELECT customer_id, sum(units) AS s FROM shop.orders GROUP BY customer_id ORDER BY sum(units) DESC NULLS LAST, customer_id LIMIT 2;

-- top_in_from: limit subquery
SELECT q.id, c.name FROM (SELECT * FROM shop.orders ORDER BY id DESC LIMIT 4) q LEFT JOIN shop.customers c ON c.id = q.customer_id;

-- top_union: limit sets
SELECT id FROM shop.orders UNION SELECT id FROM shop.customers ORDER BY 1 DESC LIMIT 3;

-- top_of_each: limit lateral
SELECT c.id, q.units FROM shop.customers c CROSS JOIN LATERAL (SELECT o.units FROM shop.orders o WHERE o.customer_id = c.id ORDER BY o.units DESC NULLS LAST, o.id LIMIT 1) q;

-- top_distinct: limit distinct
SELECT DISTINCT value FROM shop.events ORDER BY value DESC NULLS LAST LIMIT 2;

-- ordered: order
SELECT id, note FROM shop.orders ORDER BY note, id;

-- limit_subquery: limit subquery
SELECT id FROM shop.orders ORDER BY id LIMIT greatest((SELECT count(*) FROM shop.customers) - 2, 0);

-- limit_fraction: limit
SELECT id FROM shop.orders ORDER BY id LIMIT 2.5;

-- limit_null: limit subquery
SELECT id FROM shop.orders ORDER BY id LIMIT (SELECT max(value) FROM shop.events WHERE value < 0) OFFSET (SELECT NULL::int);

-- no_ties_of_no_row: limit ties
SELECT id, units FROM shop.orders ORDER BY units OFFSET 1 ROWS FETCH FIRST 0 ROWS WITH TIES;
