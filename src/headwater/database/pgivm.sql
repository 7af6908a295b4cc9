-- The functions of pg_ivm, over IMMEDIATE stream tables. Run in one transaction by the installer, with
-- search_path = pg_catalog, pg_temp, where the schema pgivm does not exist or is ours.

CREATE SCHEMA IF NOT EXISTS pgivm;
COMMENT ON SCHEMA pgivm IS 'headwater: the functions of pg_ivm';
GRANT USAGE ON SCHEMA pgivm TO PUBLIC;

-- The transaction in lastivmupdate is the last one that filled the whole table: what follows a
-- single write leaves no trace in the catalog, so that writers need not wait for each other there.
CREATE OR REPLACE VIEW pgivm.pg_ivm_immv AS
SELECT st.pgt_relid::regclass AS immvrelid,
       st.canonical_query AS viewdef,
       st.is_populated AND st.status <> 'SUSPENDED' AS ispopulated,
       (st.frontier ->> 'xid')::xid8 AS lastivmupdate,
       st.defining_query AS querystring
  FROM pgtrickle.pgt_stream_tables st
  JOIN pg_class c ON c.oid = st.pgt_relid
 WHERE st.refresh_mode = 'IMMEDIATE';
GRANT SELECT ON pgivm.pg_ivm_immv TO PUBLIC;

CREATE OR REPLACE FUNCTION pgivm.create_immv(immv text, view_definition text) RETURNS bigint
LANGUAGE sql STRICT
BEGIN ATOMIC
    SELECT (pgtrickle.carry_out('create_immv',
        jsonb_build_object('immv', immv, 'view_definition', view_definition),
        current_setting('search_path')) -> 'rows')::bigint;
END;

CREATE OR REPLACE FUNCTION pgivm.refresh_immv(immv text, with_data boolean DEFAULT true)
RETURNS bigint
LANGUAGE sql STRICT
BEGIN ATOMIC
    SELECT (pgtrickle.carry_out('refresh_immv',
        jsonb_build_object('immv', immv, 'with_data', with_data),
        current_setting('search_path')) -> 'rows')::bigint;
END;

-- The table is there, as a dump or another system left it. Its rows are computed anew, whatever
-- `populate` says: nobody else can vouch for them.
CREATE OR REPLACE FUNCTION pgivm.restore_immv(
    immv text, view_definition text, populate boolean DEFAULT false) RETURNS void
LANGUAGE sql STRICT
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('restore_immv',
        jsonb_build_object('immv', immv, 'view_definition', view_definition),
        current_setting('search_path'));
END;

CREATE OR REPLACE FUNCTION pgivm.get_immv_def(immv regclass) RETURNS text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT i.viewdef FROM pgivm.pg_ivm_immv i WHERE i.immvrelid = immv;
END;

CREATE OR REPLACE FUNCTION pgivm.get_create_immv_commands() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT format('SELECT pgivm.create_immv(%L, %L);', i.immvrelid::text, i.viewdef)
      FROM pgivm.pg_ivm_immv i ORDER BY i.immvrelid::text;
END;

CREATE OR REPLACE FUNCTION pgivm.get_restore_immv_commands() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT format('SELECT pgivm.restore_immv(%L, %L);', i.immvrelid::text, i.viewdef)
      FROM pgivm.pg_ivm_immv i ORDER BY i.immvrelid::text;
END;

-- An IMMV depends on the tables that it reads: those are only dropped with CASCADE, and it goes too. What
-- says so to the server is a view of no columns over them, `pgtrickle_state.reads_<id>`.
CREATE OR REPLACE FUNCTION pgivm.follow_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    dropped oid[] := ARRAY(SELECT o.objid FROM pg_event_trigger_dropped_objects() o);
    views text[] := ARRAY(SELECT o.object_name FROM pg_event_trigger_dropped_objects() o
                           WHERE o.object_type = 'view' AND o.schema_name = 'pgtrickle_state');
    immvs text[];
    doomed text;
BEGIN
    IF to_regclass('pgtrickle.pgt_stream_tables') IS NULL THEN  -- headwater itself is dropped
        RETURN;
    END IF;
    IF NOT pgtrickle.is_at_home() THEN  -- the oids on record are those of another database
        RETURN;
    END IF;
    immvs := ARRAY(
        SELECT st.pgt_relid::regclass::text
          FROM pgtrickle.pgt_stream_tables st JOIN pg_class c ON c.oid = st.pgt_relid
         WHERE st.refresh_mode = 'IMMEDIATE' AND 'reads_' || st.pgt_id = ANY (views)
           AND EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
                        WHERE d.pgt_id = st.pgt_id AND d.source_relid = ANY (dropped))
         ORDER BY st.pgt_id);
    FOREACH doomed IN ARRAY immvs LOOP
        RAISE NOTICE 'drop cascades to table %', doomed;
    END LOOP;
    IF immvs <> '{}' THEN  -- all at once: none is left to be told that its source is gone
        EXECUTE format('DROP TABLE IF EXISTS %s CASCADE', array_to_string(immvs, ', '));
    END IF;
    FOR doomed IN
        SELECT c.oid::regclass::text FROM pg_class c
         WHERE c.relnamespace = 'pgtrickle_state'::regnamespace AND c.relkind = 'v'
           AND starts_with(c.relname, 'reads_')
           AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables st JOIN pg_class t ON t.oid = st.pgt_relid
                            WHERE c.relname = 'reads_' || st.pgt_id)
    LOOP
        EXECUTE format('DROP VIEW %s', doomed);
    END LOOP;
END
$$;

-- Only a superuser may create event triggers. Without one, nothing is known to depend on a source.
DO $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
       AND NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'pgivm_follow_drop') THEN
        CREATE EVENT TRIGGER pgivm_follow_drop ON sql_drop EXECUTE FUNCTION pgivm.follow_drop();
    END IF;
END
$$;
