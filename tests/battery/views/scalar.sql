-- Scans, filters and expressions over one source.

-- all_columns: scan every-type
SELECT * FROM shop.customers;

-- all_order_columns: scan json point generated
SELECT * FROM shop.orders;

-- keyless: scan bag
SELECT kind, value, other FROM shop.events;

-- keyless_part: scan bag
SELECT kind FROM shop.events;

-- constant: no-from
SELECT 1 AS one, 'x' AS x;

-- constants_per_row: bag
SELECT 1 AS one, NULL AS nothing, 'x' AS x FROM shop.events;

-- mixed_names: mixed-case reserved
SELECT "A", a, "select", "user", "from" AS "where", "Group", "100%" AS "50%"
    FROM "Mixed Case"."Order";

-- mixed_filter: mixed-case reserved
SELECT "Order"."A" + "Order".a AS "Sum" FROM "Mixed Case"."Order"
    WHERE "Order"."A" = 1 AND "user" IS NOT NULL AND "100%" % 2 = 1;

-- partitioned: partition
SELECT sensor, day, value, label FROM shop.readings;

-- case_expression: case
SELECT id, CASE WHEN units > 2 THEN 'many' WHEN units IS NULL THEN 'none' ELSE 'few' END
    AS size, CASE customer_id WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS who
    FROM shop.orders;

-- null_functions: coalesce nullif
SELECT id, COALESCE(note, name_of, 'none') AS label, NULLIF(qty, 1) AS q,
    GREATEST(qty, units, 2) AS most, LEAST(qty, units) AS least
    FROM (SELECT id, note, qty, units, raw::text AS name_of FROM shop.orders) AS o;

-- patterns: like regex
SELECT id, name FROM shop.customers
    WHERE name LIKE '%d%' OR name ILIKE 'b_B' OR name ~ '^[A-C]' OR name LIKE '50\%\_%'
    OR name SIMILAR TO '(Eve|Two)%' OR name !~* 'a|e|o';

-- patterns_of_one: like
SELECT id, name LIKE '%a%' AS has, regexp_replace(name, '([a-z])', '<\1>', 'g') AS swapped,
    substring(name FROM 2 FOR 1) AS second, position('a' IN name) AS place,
    trim(BOTH 'A' FROM name) AS cut, overlay(name PLACING 'zz' FROM 2 FOR 1) AS laid
    FROM shop.customers;

-- jsonb_operators: jsonb
SELECT id, profile -> 'b' AS b, profile ->> 'a' AS a, profile #>> '{b,c,0}' AS deep,
    profile @> '{"a": 1}' AS has, profile ? 'a' AS there,
    jsonb_typeof(profile) AS kind, profile || '{"q": [1.0]}' AS more
    FROM shop.customers;

-- jsonb_filter: jsonb
SELECT id, profile FROM shop.customers WHERE profile @> '{"a": 1}' OR profile = 'null';

-- casts: cast
SELECT id, units::text AS t, rate::numeric(10, 3)::text AS r, price::float8 AS f,
    qty::bigint AS b, at::date AS d, (units::bigint * 2)::numeric / 3 AS third
    FROM shop.orders WHERE rate IS NULL OR abs(rate) < 1000;

-- times: at-time-zone extract interval
SELECT id, joined AT TIME ZONE 'Europe/Berlin' AS local, EXTRACT(year FROM joined) AS y,
    EXTRACT(epoch FROM span) AS e, born + interval '1' year AS later,
    born - INTERVAL '1 month 2 days' AS before, age(timestamp '2024-01-01', born) AS age,
    date_trunc('month', joined) AS month, to_char(joined, 'YYYY-MM-DD HH24:MI') AS text
    FROM shop.customers;

-- arrays: array
SELECT id, tags[1] AS first, tags || ARRAY['q'] AS more, cardinality(tags) AS n,
    'a' = ANY (tags) AS has, ARRAY[id, share::int] AS both, tags[1:1] AS cut,
    array_position(tags, 'b') AS place
    FROM shop.customers;

-- distinctness: is-distinct-from row-comparison
SELECT id, customer_id IS DISTINCT FROM units AS differ,
    (customer_id, units) < (2, 3) AS smaller, (qty, units) IS NOT DISTINCT FROM (1, 1) AS same,
    units BETWEEN 1 AND 4 AS mid, units NOT IN (1, 2) AS none, units IS NULL AS empty
    FROM shop.orders WHERE (customer_id, units) IS DISTINCT FROM ROW(1, 1);

-- boolean_tests: boolean
SELECT id, vip IS TRUE AS t, vip IS NOT FALSE AS nf, vip IS UNKNOWN AS u, NOT vip AS n,
    vip AND share > 5 OR region = 'north' AS mix
    FROM shop.customers WHERE vip IS NOT TRUE OR share >= 10;

-- collations: collate
SELECT id, name COLLATE "C" < 'b' AS low, name COLLATE "POSIX" AS posix, upper(name) AS up
    FROM shop.customers WHERE region COLLATE "C" >= 'n';

-- types: enum uuid domain composite bytea bpchar
SELECT id, mood > 'sad' AS fine, mood::text AS m, code, share + 1 AS share, initial,
    (duo).first AS first, (duo).second AS second, duo, span * 2 AS span
    FROM shop.customers WHERE mood <> 'sad' OR mood IS NULL;

-- own_functions: user-function user-operator
SELECT id, shop.twice(units) AS two, units OPERATOR(shop.@+@) 1 AS plus, doubled
    FROM shop.orders WHERE units < 1000;

-- whole_row: whole-row
SELECT id, to_jsonb(c) AS all, c AS row FROM shop.customers c;

-- whole_row_text: whole-row bag
SELECT e::text AS t FROM shop.events e;

-- no_equality: json point bag
SELECT doc, spot, doc ->> 'k' AS k FROM shop.orders;

-- json_in_bag: json bag
SELECT doc, spot FROM shop.orders WHERE note = 'x' OR note IS NULL;

-- filter_false: where
SELECT id FROM shop.orders WHERE false;

-- filter_true: where
SELECT id FROM shop.orders WHERE true AND units IS NOT NULL;

-- filter_or: where
SELECT * FROM shop.events WHERE kind = 'a' OR value = 1 OR other IS NULL;

-- same_column_twice: scan
SELECT id, id AS again, units, units AS units2 FROM shop.orders;

-- ordered: order-by
SELECT id, units FROM shop.orders ORDER BY units DESC NULLS LAST, id;

-- unicode: names
SELECT id AS "größe", name AS "naïve ""quoted"" %s" FROM shop.customers;
