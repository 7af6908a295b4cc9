-- Values are carried, compared and grouped as PostgreSQL does, whatever their type.

-- all_things: scan every-type dropped-column
SELECT * FROM shop.things;

-- things_in_bag: bag every-type dropped-column
SELECT n, f, r, doc, spot, area, span, days, grid, parts, home, mood, moods, code, codes, raw, flags, bits, host, net,
    cost, words, seen, lasts, short, total FROM shop.things;

-- no_equality_in_bag: json point box composite bag
SELECT doc, spot, area, home FROM shop.things WHERE id <> 3;

-- numerics_of_any_precision: numeric nan infinity
SELECT id, n, n::text AS shown, n + 1e-60 AS more, n * n AS square, round(n, 3) AS r, n > 1 AS big, scale(n) AS digits
    FROM shop.things;

-- sums_of_any_precision: numeric aggregate nan infinity
SELECT mood, sum(n)::text AS s, avg(n)::text AS a, var_pop(n)::text AS v, stddev(n)::text AS d, min(n) AS lo, max(n) AS hi
    FROM shop.things GROUP BY mood;

-- group_by_numeric_image: numeric group-types
SELECT n, count(*) AS c FROM shop.things GROUP BY n;

-- distinct_numerics: numeric distinct
SELECT DISTINCT n FROM shop.things;

-- group_by_zero: float negative-zero group-types
SELECT f, count(*) AS c, sum(id) AS s FROM shop.things GROUP BY f;

-- distinct_zero: float negative-zero distinct
SELECT DISTINCT r FROM shop.things;

-- join_of_zero: float negative-zero join
SELECT a.id, b.id AS other, a.f, b.r FROM shop.things a JOIN shop.things b ON a.f = b.r;

-- float_images: float negative-zero nan bag
SELECT f::text AS t, 1 / NULLIF(f, 0) AS inverse, f = 'NaN' AS nan FROM shop.things;

-- group_by_ranges: range multirange group-types
SELECT span, days, count(*) AS c FROM shop.things GROUP BY span, days;

-- ranges: range multirange
SELECT id, lower(span) AS lo, upper(span) AS hi, span @> 2 AS has, days * '{[2024-01-15,2024-04-01)}' AS part,
    range_merge(days) AS whole, isempty(span) AS empty FROM shop.things;

-- range_join: range join
SELECT a.id, b.id AS other FROM shop.things a JOIN shop.things b ON a.span && b.span AND a.id < b.id;

-- range_aggregates: range aggregate
SELECT code, range_agg(span) AS r, range_intersect_agg(span) AS i FROM shop.things GROUP BY code;

-- group_by_arrays: array group-types
SELECT grid, moods, codes, count(*) AS c FROM shop.things GROUP BY grid, moods, codes;

-- arrays_of_types: array
SELECT id, grid[1:1] AS cut, array_ndims(grid) AS dims, grid || ARRAY[1] AS more, parts[1] AS part, (parts[1]).second AS s,
    codes[1] AS code, cardinality(grid) AS n FROM shop.things WHERE array_ndims(grid) = 1 OR grid IS NULL;

-- array_expansion: array lateral
SELECT t.id, e.v, e.n FROM shop.things t CROSS JOIN LATERAL unnest(t.grid) WITH ORDINALITY AS e (v, n);

-- group_by_composites: composite group-types
SELECT parts, (home).duo AS duo, count(*) AS c FROM shop.things GROUP BY parts, (home).duo;

-- composites: composite json point
SELECT id, home, (home).spot AS spot, (home).note AS note, (home).duo AS duo, home IS NULL AS empty,
    ROW(id, code)::shop.pair AS made FROM shop.things;

-- group_by_enum: enum group-types
SELECT mood, count(*) AS c, max(mood) AS top, min(moods) AS least FROM shop.things GROUP BY mood;

-- group_by_domain: domain group-types
SELECT code, codes, count(*) AS c, max(code) AS most, string_agg(code, ',' ORDER BY code, id) AS all FROM shop.things GROUP BY code, codes;

-- domain_left_join: domain join outer
SELECT a.id, b.code, b.codes, b.mood FROM shop.things a LEFT JOIN shop.things b ON b.id = a.id + 1;

-- group_by_bytes: bytea group-types
SELECT raw, flags, bits, count(*) AS c FROM shop.things GROUP BY raw, flags, bits;

-- bytes: bytea bit
SELECT id, raw || '\x00' AS more, length(raw) AS n, encode(raw, 'hex') AS hex, flags & B'100' AS f, ~ bits AS s, md5(raw) AS m
    FROM shop.things;

-- group_by_addresses: inet group-types
SELECT host, net, count(*) AS c FROM shop.things GROUP BY host, net;

-- group_by_times: interval timetz group-types
SELECT lasts, seen, count(*) AS c FROM shop.things GROUP BY lasts, seen;

-- distinct_intervals: interval distinct
SELECT DISTINCT lasts FROM shop.things;

-- group_by_bpchar: bpchar group-types
SELECT short, count(*) AS c, max(short) AS m FROM shop.things GROUP BY short;

-- bpchar_and_text: bpchar join
SELECT a.id, b.id AS other, a.short || '|' AS shown FROM shop.things a JOIN shop.things b ON a.short = b.short;

-- group_by_words: tsvector money group-types
SELECT words, cost, count(*) AS c, sum(cost) AS s FROM shop.things GROUP BY words, cost;

-- union_of_types: union types
SELECT n, f, span, parts, mood FROM shop.things WHERE id < 4 UNION SELECT n, r, span, parts, mood FROM shop.things;

-- except_of_types: except types
SELECT n, f, lasts, short FROM shop.things EXCEPT ALL SELECT n, f, lasts, short FROM shop.things WHERE id > 4;

-- generated_stored: generated aggregate
SELECT mood, sum(total) AS s, count(total) AS c FROM shop.things GROUP BY mood;

-- things_as_rows: whole-row dropped-column
SELECT t.id, t.n, to_jsonb(t) -> 'span' AS span, t AS row FROM shop.things t;

-- rows_of_outer_join: whole-row dropped-column outer
SELECT a.id, b AS row FROM shop.things a LEFT JOIN shop.things b ON b.id = a.id + 2;

-- arrays_of_json: json aggregate
SELECT mood, array_agg(doc ORDER BY id) AS docs, array_agg(spot ORDER BY id) AS spots FROM shop.things GROUP BY mood;

-- windows_over_types: window types
SELECT id, doc, row_number() OVER (PARTITION BY f ORDER BY id) AS k, lag(spot) OVER (PARTITION BY short ORDER BY id) AS last
    FROM shop.things;

-- not_in_composites: composite subquery null
SELECT id, duo FROM shop.customers WHERE duo NOT IN (SELECT (home).duo FROM shop.things WHERE (home).duo IS DISTINCT FROM NULL);

-- subqueries_over_json: json subquery correlated
SELECT id, (SELECT string_agg(k, ',' ORDER BY k) FROM json_object_keys(CASE json_typeof(doc) WHEN 'object' THEN doc END) AS k) AS keys,
       (SELECT count(*) FROM shop.orders o WHERE o.doc::text = t.doc::text AND o.id <> t.id) AS alike
    FROM shop.things t;

-- lateral_over_points: point lateral correlated
SELECT t.id, q.near, q.own FROM shop.things t
    LEFT JOIN LATERAL (SELECT count(*) AS near, max(o.spot[0] + t.spot[0]) AS own FROM shop.orders o WHERE o.spot <-> t.spot < 2) q ON true;

-- rows_as_values: set-returning composite
SELECT id, shop.pairs(units) AS pair, shop.pairs(edge)::text AS said, (shop.pairs(units)).second FROM shop.orders;

-- groups_of_row_values: set-returning composite aggregate
SELECT shop.pairs(qty) AS pair, count(*) AS n FROM shop.orders GROUP BY 1;
