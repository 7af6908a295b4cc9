-- A join, written to from both sides in one transaction; savepoints take both back.
BEGIN;
CREATE TABLE goods (id int PRIMARY KEY, label text, price int);
CREATE TABLE sales (no int PRIMARY KEY, good int, pieces int);
INSERT INTO goods VALUES (1, 'pen', 3), (2, 'ink', 7), (3, 'pad', 5);
INSERT INTO sales VALUES (10, 1, 4), (11, 2, 1), (12, 1, 2), (13, 9, 1);
SELECT pgivm.create_immv('sold', 'SELECT s.no, g.id, g.label, s.pieces * g.price AS sum FROM sales s JOIN goods g ON g.id = s.good') = 3 AS three;
SELECT pgivm.create_immv('loose(thing, n)', 'SELECT g.label, s.pieces FROM sales s, goods g WHERE g.id = s.good');
SELECT pgivm.create_immv('pairs', 'SELECT a.no AS a, b.no AS b FROM sales a JOIN sales b ON a.good = b.good');
SELECT pgivm.create_immv('all_goods', 'SELECT g.id, g.label, s.no FROM goods g LEFT JOIN sales s ON s.good = g.id');
SELECT pgivm.create_immv('twins(one, other)', 'SELECT a.no, b.no FROM sales a JOIN sales b ON a.good = b.good');
SELECT same('sold'), same('loose'), same('pairs'), same('all_goods');
INSERT INTO sales VALUES (14, 3, 8), (15, 3, 8);
UPDATE goods SET price = price + 1 WHERE id <> 2;
SELECT same('sold'), same('loose'), same('pairs'), same('all_goods');
SAVEPOINT before;
DELETE FROM sales WHERE good = 1;
UPDATE goods SET id = 9 WHERE id = 3;
SELECT same('sold'), same('loose'), same('pairs'), same('all_goods');
ROLLBACK TO before;
SELECT same('sold'), same('loose'), same('pairs'), same('all_goods');
WITH gone AS (DELETE FROM goods WHERE id = 2 RETURNING id), more AS (INSERT INTO goods VALUES (4, 'cap', 1))
INSERT INTO sales SELECT 20, 4, id FROM gone;
SELECT same('sold'), same('loose'), same('pairs'), same('all_goods');
TRUNCATE sales;
SELECT same('sold'), same('loose'), same('pairs'), same('all_goods');
COMMIT;
SELECT same('sold'), same('twins'), same('loose'), same('pairs'), same('all_goods');
