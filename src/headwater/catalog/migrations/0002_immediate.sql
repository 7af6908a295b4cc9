-- IMMEDIATE tables: what their triggers need besides the functions that are made for each, and what
-- keeps those right when a table is altered.

-- Put the triggers of one stream table and one of its sources on a table: the source itself, or a
-- partition or child of it, whose own name a statement may use. They fire ALWAYS, also in sessions
-- of the replica role.
CREATE FUNCTION pgtrickle.put_triggers(own_id bigint, source oid, carrier oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kind text;
    timing text;
    function_name text;
    trigger_name text;
BEGIN
    FOR kind, timing IN VALUES
        ('open', 'BEFORE INSERT OR UPDATE OR DELETE ON %s'),
        ('insert', 'AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows'),
        ('update', 'AFTER UPDATE ON %s REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows'),
        ('delete', 'AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows'),
        ('truncate', 'BEFORE TRUNCATE ON %s'),
        ('truncated', 'AFTER TRUNCATE ON %s')
    LOOP
        function_name := CASE WHEN kind = 'open' THEN format('follow_%s_open', own_id)
                              ELSE format('follow_%s_%s_%s', own_id, source, kind) END;
        CONTINUE WHEN to_regproc('pgtrickle_state.' || function_name) IS NULL;
        trigger_name := format('pgt_imm_%s_%s_%s', own_id, source, kind);
        EXECUTE format('CREATE OR REPLACE TRIGGER %I ' || timing || ' FOR EACH STATEMENT'
                       ' EXECUTE FUNCTION pgtrickle_state.%I()',
                       trigger_name, carrier::regclass, function_name);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', carrier::regclass, trigger_name);
    END LOOP;
END
$$;

-- Take away what follows the sources of a stream table; the triggers go with their functions, of
-- which nobody needs to hear.
CREATE FUNCTION pgtrickle.remove_following(own_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    doomed text;
BEGIN
    FOR doomed IN
        SELECT p.oid::regprocedure::text FROM pg_proc p
         WHERE p.pronamespace = 'pgtrickle_state'::regnamespace
           AND (p.proname = 'follow_' || own_id OR starts_with(p.proname, format('follow_%s_', own_id)))
    LOOP
        EXECUTE format('DROP FUNCTION %s CASCADE', doomed);
    END LOOP;
    FOR doomed IN
        SELECT c.oid::regclass::text FROM pg_class c
         WHERE c.relnamespace = 'pgtrickle_state'::regnamespace AND c.relkind = 'r'
           AND (c.relname IN ('locks_' || own_id, 'since_' || own_id)
                OR starts_with(c.relname, format('pending_%s_', own_id)))
    LOOP
        EXECUTE format('DROP TABLE %s', doomed);
    END LOOP;
END
$$;

-- A source is no longer what the functions were made for. Writers go on, and the stream table says
-- that it does not: a refresh compiles it again.
CREATE FUNCTION pgtrickle.stop_following(own_id bigint, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    shown text;
BEGIN
    SELECT format('%I.%I', st.pgt_schema, st.pgt_name) INTO shown
      FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = own_id;
    IF lower(current_setting('pg_trickle.block_source_ddl', true)) IN ('on', 'true', 'yes', '1') THEN
        RAISE EXCEPTION 'the stream table % is in the way: %', shown, why
            USING ERRCODE = 'dependent_objects_still_exist',
                  HINT = 'Alter or drop the stream table first, or set pg_trickle.block_source_ddl = off.';
    END IF;
    PERFORM pgtrickle.remove_following(own_id);
    UPDATE pgtrickle.pgt_stream_tables
       SET status = 'ERROR', last_error = why, needs_reinit = true, reinit_reason = why,
           data_timestamp = now(), updated_at = now()
     WHERE pgt_id = own_id;
    RAISE WARNING 'the stream table % no longer follows its sources: %', shown, why
        USING HINT = 'Refresh it: that compiles its query again.';
END
$$;

-- The functions of a stream table name it; give them its new name.
CREATE FUNCTION pgtrickle.rename_following(own_id bigint, old_name text, new_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    definition text;
BEGIN
    FOR definition IN
        SELECT pg_get_functiondef(p.oid) FROM pg_proc p
         WHERE p.pronamespace = 'pgtrickle_state'::regnamespace
           AND (p.proname = 'follow_' || own_id OR starts_with(p.proname, format('follow_%s_', own_id)))
    LOOP
        EXECUTE replace(definition, old_name, new_name);
    END LOOP;
END
$$;

-- After any command that may alter a source or a stream table. Partitions that came are given
-- triggers, and their rows are taken in; what cannot be followed any more is stopped.
CREATE FUNCTION pgtrickle.follow_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own record;
    source record;
    carrier oid;
    is_wider boolean;
BEGIN
    IF current_setting('pg_trickle.installing', true) = 'on' THEN
        RETURN;
    END IF;
    PERFORM set_config('pg_trickle.installing', 'on', true);  -- what follows is DDL too
    FOR own IN
        SELECT st.pgt_id, st.pgt_schema, st.pgt_name, c.relname, n.nspname
          FROM pgtrickle.pgt_stream_tables st
          LEFT JOIN pg_class c ON c.oid = st.pgt_relid
          LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE st.effective_mode = 'IMMEDIATE' AND st.status = 'ACTIVE' AND st.is_populated
         ORDER BY st.pgt_id
    LOOP
        IF own.relname IS NULL THEN
            PERFORM pgtrickle.remove_following(own.pgt_id);
            CONTINUE;
        END IF;
        IF (own.relname, own.nspname) <> (own.pgt_name, own.pgt_schema) THEN
            PERFORM pgtrickle.rename_following(own.pgt_id,
                format('"%s"."%s"', replace(own.pgt_schema, '"', '""'), replace(own.pgt_name, '"', '""')),
                format('"%s"."%s"', replace(own.nspname, '"', '""'), replace(own.relname, '"', '""')));
            UPDATE pgtrickle.pgt_stream_tables
               SET pgt_schema = own.nspname, pgt_name = own.relname WHERE pgt_id = own.pgt_id;
        END IF;
        SELECT d.source_name INTO source FROM pgtrickle.pgt_dependencies d
         WHERE d.pgt_id = own.pgt_id
           AND d.fingerprint IS DISTINCT FROM
               pgtrickle.source_fingerprint(d.source_relid, d.columns_used)
         LIMIT 1;
        IF FOUND THEN
            PERFORM pgtrickle.stop_following(own.pgt_id, source.source_name || ' was altered or dropped');
            CONTINUE;
        END IF;
        is_wider := false;
        FOR source IN
            SELECT d.source_relid, d.source_name FROM pgtrickle.pgt_dependencies d
             WHERE d.pgt_id = own.pgt_id
               AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = d.source_relid)
               AND to_regproc(format('pgtrickle_state.follow_%s_%s_insert', own.pgt_id, d.source_relid))
                   IS NOT NULL
        LOOP
            FOREACH carrier IN ARRAY pgtrickle.table_with_children(source.source_relid) LOOP
                PERFORM FROM pg_trigger g WHERE g.tgrelid = carrier
                   AND g.tgname = format('pgt_imm_%s_%s_insert', own.pgt_id, source.source_relid);
                IF NOT FOUND THEN
                    PERFORM pgtrickle.put_triggers(own.pgt_id, source.source_relid, carrier);
                    is_wider := true;
                END IF;
            END LOOP;
        END LOOP;
        CONTINUE WHEN NOT is_wider;
        IF current_setting('transaction_isolation') = 'read committed' THEN
            EXECUTE format('SELECT pgtrickle_state.follow_%s_anew()', own.pgt_id);
        ELSE
            PERFORM pgtrickle.stop_following(own.pgt_id, 'a source has partitions that it had not');
        END IF;
    END LOOP;
    PERFORM set_config('pg_trickle.installing', 'off', true);
END
$$;

-- Only a superuser may create event triggers. Without them a refresh finds out what was altered.
DO $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        CREATE EVENT TRIGGER pgt_follow_ddl ON ddl_command_end
            WHEN TAG IN ('ALTER TABLE', 'CREATE TABLE', 'ALTER SCHEMA', 'CREATE VIEW', 'ALTER VIEW')
            EXECUTE FUNCTION pgtrickle.follow_ddl();
        CREATE EVENT TRIGGER pgt_follow_drop ON sql_drop EXECUTE FUNCTION pgtrickle.follow_ddl();
    END IF;
END
$$;
