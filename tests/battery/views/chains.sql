-- Stream tables over stream tables; st is the schema of the stream tables.

-- base: stream
SELECT customer_id, units, price FROM shop.orders WHERE units > 0;

-- base_keyed: stream
SELECT id, name, region FROM shop.customers;

-- over: stream-over-stream
SELECT customer_id, sum(units) AS u, count(*) AS n FROM st.base GROUP BY customer_id;

-- over_twice: stream-over-stream
SELECT n, count(*) AS c, max(u) AS m FROM st.over GROUP BY n;

-- left_arm: diamond
SELECT region, count(*) AS n FROM shop.customers GROUP BY region;

-- right_arm: diamond
SELECT c.region, max(o.price) AS p FROM shop.customers c JOIN shop.orders o ON o.customer_id = c.id GROUP BY c.region;

-- diamond: diamond outer
SELECT l.region, l.n, r.p FROM st.left_arm l LEFT JOIN st.right_arm r ON r.region IS NOT DISTINCT FROM l.region;

-- beside_source: stream-and-table
SELECT b.name, o.id FROM st.base_keyed b FULL JOIN shop.orders o ON o.customer_id = b.id;

-- bag: stream bag
SELECT kind, value FROM shop.events;

-- over_bag: stream-over-bag
SELECT a.kind, b.value FROM st.bag a LEFT JOIN st.bag b ON a.value = b.value + 1;

-- bag_groups: stream-over-bag
SELECT kind, count(*) AS n, min(value) AS m FROM st.bag GROUP BY kind;

-- over_sets: stream-over-stream
SELECT kind, value::bigint AS n FROM st.bag EXCEPT ALL SELECT kind, n FROM st.bag_groups;

-- three_up: stream-over-stream
SELECT o.n, count(*) AS k FROM st.over_sets o GROUP BY o.n HAVING count(*) > 0;

-- partitions: stream partition
SELECT sensor, sum(value) AS s FROM shop.readings GROUP BY sensor;

-- over_partitions: stream-over-stream
SELECT count(*) AS n, max(s) AS m FROM st.partitions;
