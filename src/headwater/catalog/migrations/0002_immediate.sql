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
