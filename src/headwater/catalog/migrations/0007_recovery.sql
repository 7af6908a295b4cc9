-- A catalog that came out of a dump, or with a copy of its database, becomes this database's own.

-- Relations are found by their names. All that was made for those of the other database goes: what
-- follows their changes, the changes themselves, the epochs, and what is known of its files in the lake, which
-- are still its own. Every stream table is computed anew by its next refresh, which compiles it first, since
-- no source has the fingerprint that is on record. Rows stay until then. Returns the stream tables that are not here.
CREATE FUNCTION pgtrickle.adopt_catalog(why text) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    doomed text;
BEGIN
    PERFORM set_config('pg_trickle.installing', 'on', true);  -- what follows is DDL
    PERFORM pgtrickle.remove_following(st.pgt_id) FROM pgtrickle.pgt_stream_tables st;
    FOR doomed IN
        SELECT format('FUNCTION %s CASCADE', p.oid::regprocedure) FROM pg_proc p
         WHERE p.pronamespace = 'pgtrickle_changes'::regnamespace
        UNION ALL
        SELECT format('TABLE %s', c.oid::regclass) FROM pg_class c
         WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace
           AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    LOOP
        EXECUTE 'DROP ' || doomed;
    END LOOP;
    DELETE FROM pgtrickle.pgt_change_tracking;
    DELETE FROM pgtrickle.pgt_trace_readers;
    DELETE FROM pgtrickle.pgt_traces;
    DELETE FROM pgtrickle.pgt_leader;
    DELETE FROM pgtrickle.pgt_patches;  -- of transactions over there
    UPDATE pgtrickle.pgt_refresh_history h
       SET status = 'FAILED', end_time = clock_timestamp(), error_class = 'system', error_message = why
     WHERE h.status = 'RUNNING';
    -- First out of the way, to oids that no relation has: one may be about to get another's old one.
    UPDATE pgtrickle.pgt_stream_tables st
       SET pgt_relid = (4294967295 - st.pgt_id)::oid, epoch = NULL, frontier = NULL;
    DELETE FROM pgtrickle.pgt_epochs;
    UPDATE pgtrickle.pgt_stream_tables st
       SET pgt_relid = c.oid, owner = c.relowner, needs_reinit = true, reinit_reason = why,
           updated_at = now()
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE (n.nspname, c.relname) = (st.pgt_schema, st.pgt_name);
    -- Nothing follows the sources of these now, so they must not say that they are current.
    UPDATE pgtrickle.pgt_stream_tables st SET status = 'ERROR', last_error = why
     WHERE st.effective_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE';
    UPDATE pgtrickle.pgt_tviews t
       SET view_relid = coalesce((SELECT to_regclass(d.source_name)::oid
                                    FROM pgtrickle.pgt_dependencies d
                                   WHERE (d.pgt_id, d.source_relid) = (t.pgt_id, t.view_relid)), 0);
    UPDATE pgtrickle.pgt_dependencies d
       SET source_relid = (4294967295 - numbered.place)::oid, fingerprint = NULL, carriers = NULL
      FROM (SELECT o.pgt_id, o.source_relid, row_number() OVER () AS place
              FROM pgtrickle.pgt_dependencies o) numbered
     WHERE (numbered.pgt_id, numbered.source_relid) = (d.pgt_id, d.source_relid);
    UPDATE pgtrickle.pgt_dependencies d SET source_relid = to_regclass(d.source_name)
     WHERE to_regclass(d.source_name) IS NOT NULL;
    UPDATE pgtrickle.pgt_home SET identity = pgtrickle.own_identity();
    RETURN QUERY
    SELECT format('%I.%I', st.pgt_schema, st.pgt_name) FROM pgtrickle.pgt_stream_tables st
     WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = st.pgt_relid)
     ORDER BY 1;
END
$$;

-- What became of each stream table: marked (its next refresh computes it anew), rebuilt (IMMEDIATE
-- and COMMIT: it follows its sources again), failed, gone. Nothing where the catalog is at home.
CREATE FUNCTION pgtrickle.restore_stream_tables()
RETURNS TABLE (stream_table text, outcome text, detail text)
LANGUAGE sql
BEGIN ATOMIC
    SELECT answer ->> 'name', answer ->> 'outcome', answer ->> 'detail'
      FROM jsonb_array_elements(pgtrickle.carry_out('restore_stream_tables', '{}',
               current_setting('search_path'))) AS answer;
END;
