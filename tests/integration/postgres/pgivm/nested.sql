-- Subqueries, common tables, EXISTS, and IMMVs over IMMVs.
BEGIN;
CREATE TABLE people (id int PRIMARY KEY, team int, pay int);
CREATE TABLE teams (id int PRIMARY KEY, name text);
INSERT INTO people SELECT i, i % 4, i * 10 FROM generate_series(1, 20) AS i;
INSERT INTO teams VALUES (0, 'red'), (1, 'green'), (2, 'blue');
SELECT pgivm.create_immv('well_paid', 'SELECT p.id, t.name FROM (SELECT * FROM people WHERE pay > 50) p JOIN teams t ON t.id = p.team');
SELECT pgivm.create_immv('staffed', 'WITH member AS (SELECT team FROM people) SELECT t.id, t.name FROM teams t JOIN member m ON m.team = t.id');
SELECT pgivm.create_immv('pay', 'SELECT team, sum(pay) AS total, count(*) AS heads FROM people GROUP BY team');
SELECT pgivm.create_immv('named_pay', 'SELECT t.name, p.total FROM pay p JOIN teams t ON t.id = p.team');
SELECT same('well_paid'), same('staffed'), same('pay'), same('named_pay');
UPDATE people SET team = 2, pay = pay * 2 WHERE id % 3 = 0;
INSERT INTO teams VALUES (3, 'grey');
SELECT same('well_paid'), same('staffed'), same('pay'), same('named_pay');
DELETE FROM people WHERE team = 1;
DELETE FROM teams WHERE id = 0;
SELECT same('well_paid'), same('staffed'), same('pay'), same('named_pay');
ROLLBACK;
SELECT count(*) = 0 AS none FROM pgivm.pg_ivm_immv;
