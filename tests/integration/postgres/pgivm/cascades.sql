-- One statement that changes several tables: foreign keys, and triggers that write again.
BEGIN;
CREATE TABLE parent (id int PRIMARY KEY, name text);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, n int);
CREATE FUNCTION add_child() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO child VALUES (1000 + NEW.id, NEW.id, 0); RETURN NULL; END $$;
CREATE TRIGGER add_child AFTER INSERT ON parent FOR EACH ROW EXECUTE FUNCTION add_child();
INSERT INTO parent VALUES (1, 'a'), (2, 'b'), (3, 'c');
INSERT INTO child SELECT i, 1 + i % 3, i FROM generate_series(1, 9) AS i;
SELECT pgivm.create_immv('family', 'SELECT c.id, p.id AS parent, p.name, c.n FROM parent p JOIN child c ON c.parent = p.id');
SELECT pgivm.create_immv('sizes', 'SELECT p.name, count(*), sum(c.n) FROM parent p JOIN child c ON c.parent = p.id GROUP BY p.name');
DELETE FROM parent WHERE id = 2;
SELECT same('family'), same('sizes');
UPDATE parent SET id = id + 10, name = upper(name);
SELECT same('family'), same('sizes');
INSERT INTO parent VALUES (7, 'x'), (8, 'y');
SELECT same('family'), same('sizes');
COMMIT;
