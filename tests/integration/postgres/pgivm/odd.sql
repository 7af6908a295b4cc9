-- Less common definitions: lists of columns, functions and constants, types without a hash, joins without a key.
BEGIN;
CREATE TABLE left_side (id int, n int);
CREATE TABLE right_side (id int, m int);
INSERT INTO left_side VALUES (1, 10), (2, 20), (3, 30), (3, 30);
INSERT INTO right_side VALUES (2, 1), (2, 2), (3, 1), (4, 1);
CREATE FUNCTION seven() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 7';
SELECT pgivm.create_immv('of_function', 'SELECT * FROM seven()') = 1 AS one;
SELECT pgivm.create_immv('of_nothing', 'SELECT 1 AS one') = 1 AS one;
SELECT pgivm.create_immv(' spaced ( first  ) ', 'SELECT id, n FROM left_side WHERE n % 20 = 10') = 3 AS three;
SELECT pgivm.create_immv('some(a)', 'SELECT id, sum(n) FROM left_side GROUP BY id') = 3 AS three;
SELECT pgivm.create_immv('tested', 'SELECT l.id, l.n FROM left_side l WHERE EXISTS (SELECT 1 FROM right_side r WHERE r.id = l.id) AND l.id > 1');
SELECT pgivm.create_immv('counted', 'SELECT count(n) FROM left_side GROUP BY id;');
SELECT pgivm.create_immv('both(a, b, c)', 'WITH l AS (SELECT * FROM left_side) SELECT x.id, y.n, r.m FROM l x JOIN l y ON x.id = y.id JOIN right_side r ON r.id = y.id');
SELECT same('spaced'), same('some'), same('tested'), same('counted'), same('"both"');
INSERT INTO left_side VALUES (4, 50), (NULL, 10), (2, NULL);
UPDATE right_side SET id = id + 1;
SELECT same('spaced'), same('some'), same('tested'), same('counted'), same('"both"');
WITH a AS (INSERT INTO left_side VALUES (5, 1) RETURNING 1), b AS (INSERT INTO left_side VALUES (6, 2) RETURNING 1),
     c AS (UPDATE left_side SET n = n + 100 RETURNING 1), d AS (DELETE FROM right_side WHERE m = 2 RETURNING 1)
SELECT NULL;
SELECT same('spaced'), same('some'), same('tested'), same('counted'), same('"both"');
CREATE TYPE score;
CREATE FUNCTION score_in(cstring) RETURNS score LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION score_out(score) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE score (LIKE = int4, INPUT = score_in, OUTPUT = score_out);
CREATE FUNCTION score_eq(score, score) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4eq';
CREATE FUNCTION score_lt(score, score) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int4lt';
CREATE FUNCTION score_cmp(score, score) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'btint4cmp';
CREATE OPERATOR = (LEFTARG = score, RIGHTARG = score, PROCEDURE = score_eq);
CREATE OPERATOR < (LEFTARG = score, RIGHTARG = score, PROCEDURE = score_lt);
CREATE OPERATOR CLASS score_ops DEFAULT FOR TYPE score USING btree AS OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 score_cmp(score, score);
CREATE TABLE scores (x score);
SELECT pgivm.create_immv('own_type', 'SELECT * FROM scores') = 0 AS none;
SELECT pgivm.create_immv('own_groups', 'SELECT x, count(*) FROM scores GROUP BY x') = 0 AS none;
INSERT INTO scores VALUES ('1'), ('1'), ('2');
DELETE FROM scores WHERE x = '2'::score;
SELECT same('own_type'), same('own_groups');
ROLLBACK;
BEGIN;
-- Every kind of outer join of three tables without keys, written to from each.
CREATE TABLE r (i int);
CREATE TABLE s (i int, j int);
CREATE TABLE t (j int);
INSERT INTO r VALUES (1), (2), (3), (3);
INSERT INTO s VALUES (2, 1), (2, 2), (3, 1), (4, 1), (4, 2);
INSERT INTO t VALUES (2), (3), (3);
DO $$
DECLARE kind text[];
BEGIN
    FOR kind IN SELECT ARRAY[a, b] FROM unnest('{FULL,LEFT,RIGHT,INNER}'::text[]) AS a, unnest('{FULL,LEFT,RIGHT,INNER}'::text[]) AS b LOOP
        PERFORM pgivm.create_immv(format('mv_%s_%s(a, b, c, d)', kind[1], kind[2]), format(
            'SELECT r.i, s.i, s.j, t.j FROM r %s JOIN s ON r.i = s.i %s JOIN t ON s.j = t.j', kind[1], kind[2]));
    END LOOP;
END $$;
CREATE FUNCTION all_same() RETURNS boolean LANGUAGE sql AS 'SELECT bool_and(same(immvrelid)) FROM pgivm.pg_ivm_immv';
SAVEPOINT start;
INSERT INTO r VALUES (1), (4), (5);
SELECT all_same();
INSERT INTO s VALUES (1, 3), (2, 3);
SELECT all_same();
INSERT INTO t VALUES (1), (2), (4);
SELECT all_same();
ROLLBACK TO start;
DELETE FROM r WHERE i = 3;
SELECT all_same();
DELETE FROM s WHERE i = 2;
SELECT all_same();
DELETE FROM t WHERE j = 2;
SELECT all_same();
ROLLBACK TO start;
TRUNCATE s;
SELECT all_same();
ROLLBACK;
