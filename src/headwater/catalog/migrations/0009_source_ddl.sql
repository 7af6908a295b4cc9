-- What becomes of stream tables when their sources are altered: noticed at once where event triggers may
-- be created, else by the next refresh; and in no case does a trigger of ours make a writer fail.

-- The functions of a query that somebody may replace. What those call in turn nobody can tell.
CREATE TABLE pgtrickle.pgt_function_uses (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    function_oid oid NOT NULL,
    function_name text NOT NULL,
    fingerprint jsonb,
    PRIMARY KEY (pgt_id, function_oid)
);

CREATE FUNCTION pgtrickle.function_fingerprint(own_oid oid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_array(p.pronamespace::regnamespace, p.proname, p.prosrc, p.probin,
                                 pg_get_function_sqlbody(p.oid), p.provolatile, p.proisstrict,
                                 p.proconfig, p.prolang::int8)
          FROM pg_proc p WHERE p.oid = own_oid);
END
$$;

-- Whether row security hides rows of a table from a role.
CREATE FUNCTION pgtrickle.hides_rows(relid oid, reader oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce((
        SELECT NOT (r.rolsuper OR r.rolbypassrls)
               AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))
          FROM pg_class c JOIN pg_roles r ON r.oid = reader
         WHERE c.oid = relid AND c.relrowsecurity), false);
END
$$;

-- What a role sees of a table that hides rows from it: any row that a permissive policy shows, if all the
-- restrictive ones do; NULL if it hides none.
CREATE FUNCTION pgtrickle.policy_of(relid oid, reader oid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_object(
                   'reader', pg_get_userbyid(reader),
                   'visible', concat_ws(' AND ',
                       coalesce('((' || string_agg(p.shown, ') OR (' ORDER BY p.polname)
                                        FILTER (WHERE p.polpermissive) || '))', 'false'),
                       '(' || string_agg(p.shown, ') AND (' ORDER BY p.polname)
                              FILTER (WHERE NOT p.polpermissive) || ')'))
          FROM (SELECT polname, polpermissive, pg_get_expr(polqual, polrelid) AS shown
                  FROM pg_policy
                 WHERE polrelid = relid AND polcmd IN ('r', '*') AND polqual IS NOT NULL
                   AND EXISTS (SELECT FROM unnest(polroles) AS role (id)
                                WHERE role.id = 0 OR pg_has_role(reader, role.id, 'USAGE'))) AS p
        HAVING pgtrickle.hides_rows(relid, reader));
END
$$;

-- Whether a column is still what a stream table was made for: its place, type and collation; NOT NULL if it
-- was; its values, unless column and files are others, which a grant or a default alone does not do. What
-- became of its type is asked of the type.
CREATE FUNCTION pgtrickle.column_holds(was jsonb, now_is jsonb, has_same_files boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT coalesce(was = now_is
           OR was - 4 - 4 - 4 = now_is - 4 - 4 - 4
              AND (was -> 4 = 'false' OR now_is -> 4 = 'true')
              AND (was -> 5 = now_is -> 5 OR has_same_files), false);
END;

CREATE FUNCTION pgtrickle.columns_hold(was jsonb, now_is jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT was -> 'columns' = now_is -> 'columns'
        OR NOT EXISTS (
           SELECT FROM jsonb_each(coalesce(nullif(was -> 'columns', 'null'), '{}')) AS c (name, mark)
            WHERE NOT pgtrickle.column_holds(c.mark, now_is -> 'columns' -> c.name,
                                             was -> 'files' = now_is -> 'files'));
END;

-- Whether a source is still what a stream table was made for; that more of it is unique than was, is no harm.
CREATE FUNCTION pgtrickle.still_holds(was jsonb, now_is jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF was = now_is THEN
        RETURN true;
    END IF;
    RETURN coalesce(
        was - '{unique,columns,files}'::text[] = now_is - '{unique,columns,files}'::text[]
        AND pgtrickle.columns_hold(was, now_is)
        AND coalesce(nullif(now_is -> 'unique', 'null'), '[]')
            @> coalesce(nullif(was -> 'unique', 'null'), '[]'), false);
END
$$;

-- Whether the owner of a stream table still sees the rows of a source that it was made for. PL/pgSQL, because
-- it keeps its plans: this is asked before every refresh.
CREATE FUNCTION pgtrickle.policy_holds(own pgtrickle.pgt_dependencies) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pg_class c WHERE c.oid = own.source_relid AND c.relrowsecurity;
    IF NOT FOUND THEN
        RETURN own.policy IS NULL;
    END IF;
    RETURN own.policy IS NOT DISTINCT FROM pgtrickle.policy_of(own.source_relid, (
        SELECT st.owner FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = own.pgt_id));
END
$$;

-- How a source differs from what a stream table was made for, in words.
CREATE FUNCTION pgtrickle.describe_drift(own pgtrickle.pgt_dependencies) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now_is jsonb := pgtrickle.source_fingerprint(own.source_relid, own.columns_used);
    found text;
BEGIN
    IF now_is IS NULL THEN
        RETURN format('%s was dropped', own.source_name);
    END IF;
    IF own.fingerprint IS NULL THEN
        RETURN format('%s was altered', own.source_name);
    END IF;
    IF (now_is #>> '{relation,0}', now_is #>> '{relation,1}')
       IS DISTINCT FROM (own.fingerprint #>> '{relation,0}', own.fingerprint #>> '{relation,1}') THEN
        RETURN format('%s is now called %s', own.source_name,
                      (SELECT format('%I.%I', c.relnamespace::regnamespace::name, c.relname)
                         FROM pg_class c WHERE c.oid = own.source_relid));
    END IF;
    IF NOT pgtrickle.policy_holds(own) THEN
        RETURN format('what row-level security of %s shows to the owner of the stream table was altered',
                      own.source_name);
    END IF;
    IF now_is -> 'rule' IS DISTINCT FROM own.fingerprint -> 'rule' THEN
        RETURN format('the view %s was replaced', own.source_name);
    END IF;
    IF pgtrickle.still_holds(own.fingerprint - 'unique', now_is) THEN
        RETURN format('a unique index of %s is gone', own.source_name);
    END IF;
    SELECT string_agg(CASE WHEN now_is -> 'columns' -> was.key IS NOT NULL
                           THEN format('column %I of %s was altered', was.key, own.source_name)
                           WHEN a.attname IS NULL OR a.attisdropped
                           THEN format('column %I of %s was dropped', was.key, own.source_name)
                           ELSE format('column %I of %s is now called %I', was.key, own.source_name,
                                       a.attname) END, '; ' ORDER BY was.key)
      INTO found
      FROM jsonb_each(coalesce(nullif(own.fingerprint -> 'columns', 'null'), '{}')) AS was (key, value)
      LEFT JOIN pg_attribute a ON a.attrelid = own.source_relid AND a.attnum = (was.value ->> 0)::int2
     WHERE NOT pgtrickle.column_holds(was.value, now_is -> 'columns' -> was.key,
                                      own.fingerprint -> 'files' = now_is -> 'files');
    RETURN coalesce(found, format('%s was altered', own.source_name));
END
$$;

-- Say what about its query or its sources is no longer what a stream table was made for; NULL: nothing.
CREATE FUNCTION pgtrickle.drift_of(own_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found text;
BEGIN
    SELECT string_agg(pgtrickle.describe_drift(d), '; ' ORDER BY d.source_name) INTO found
      FROM pgtrickle.pgt_dependencies d
     WHERE d.pgt_id = own_id
       AND NOT (pgtrickle.still_holds(
                    d.fingerprint, pgtrickle.source_fingerprint(d.source_relid, d.columns_used))
                AND pgtrickle.policy_holds(d));
    IF found IS NULL THEN
        SELECT string_agg(format('the function %s was replaced or dropped', f.function_name), '; '
                          ORDER BY f.function_name) INTO found
          FROM pgtrickle.pgt_function_uses f
         WHERE f.pgt_id = own_id
           AND f.fingerprint IS DISTINCT FROM pgtrickle.function_fingerprint(f.function_oid);
    END IF;
    IF found IS NULL THEN
        SELECT format('%I.%I has another owner than it had', st.pgt_schema, st.pgt_name) INTO found
          FROM pgtrickle.pgt_stream_tables st JOIN pg_class c ON c.oid = st.pgt_relid
         WHERE st.pgt_id = own_id AND c.relowner <> st.owner;
    END IF;
    RETURN found;
END
$$;

-- The same, and whether the types of columns have lost their names, labels or attributes. Writers do not ask for
-- that: plans of theirs that were made before still hold, and some would follow a change while others did not.
CREATE FUNCTION pgtrickle.alteration_of(own_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(pgtrickle.drift_of(own_id), (
        SELECT string_agg(format('the type of column %I of %s was altered', c.name, d.source_name), '; '
                          ORDER BY d.source_name, c.name)
          FROM pgtrickle.pgt_dependencies d
         CROSS JOIN LATERAL jsonb_each(coalesce(nullif(d.fingerprint -> 'columns', 'null'), '{}'))
                    AS c (name, mark)
         WHERE d.pgt_id = own_id AND c.mark -> 6 <> 'null'
           AND pgtrickle.type_fingerprint((c.mark ->> 1)::oid) @> (c.mark -> 6) IS NOT TRUE));
END
$$;

-- Say which source the owner of a stream table that writers maintain may no longer read. What a view reads
-- is read by the owner, too, since views are taken apart.
CREATE FUNCTION pgtrickle.forbidden_to(own_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT string_agg(d.source_name, ', ' ORDER BY d.source_name)
          FROM pgtrickle.pgt_stream_tables st JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = st.pgt_id
          JOIN pg_class c ON c.oid = d.source_relid AND c.relkind <> 'v'
         WHERE st.pgt_id = own_id AND st.effective_mode IN ('IMMEDIATE', 'COMMIT')
           AND NOT (has_schema_privilege(st.owner, c.relnamespace, 'USAGE')
                    AND (has_table_privilege(st.owner, c.oid, 'SELECT')
                         OR NOT EXISTS (SELECT FROM pg_attribute a
                                         WHERE a.attrelid = c.oid AND a.attname = ANY (d.columns_used)
                                           AND NOT has_column_privilege(st.owner, c.oid, a.attnum, 'SELECT'))
                            AND cardinality(d.columns_used) > 0)));
END
$$;

-- Say which column of its query a stream table has no more.
CREATE FUNCTION pgtrickle.lost_column_of(own_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT shown ->> 'name'
          FROM pgtrickle.pgt_stream_tables st
         CROSS JOIN LATERAL jsonb_array_elements(st.plan -> 'columns') WITH ORDINALITY AS c (shown, place)
         WHERE st.pgt_id = own_id AND st.pgt_relid IS NOT NULL
           AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = st.pgt_relid
                              AND a.attname = shown ->> 'name' AND NOT a.attisdropped)
         ORDER BY place LIMIT 1);
END
$$;

-- Say what else keeps a stream table from following changes that it could follow when it was made.
CREATE FUNCTION pgtrickle.obstacle_of(own_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce('the owner of the stream table may not read ' || pgtrickle.forbidden_to(own_id),
                    'the stream table has no column ' || pgtrickle.lost_column_of(own_id) || ' any more');
END
$$;

-- Whether the columns of a buffer are still columns of its source, of the same types.
CREATE FUNCTION pgtrickle.fits_buffer(source oid, buffer oid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM pg_attribute b
         WHERE b.attrelid = buffer AND b.attnum > 0 AND NOT b.attisdropped
           AND b.attname NOT IN ('__xid', '__weight')
           AND NOT EXISTS (
               SELECT FROM pg_attribute s
                WHERE s.attrelid = source AND s.attname = b.attname AND NOT s.attisdropped
                  AND (s.atttypid, s.atttypmod, s.attcollation)
                      = (b.atttypid, b.atttypmod, b.attcollation)));
END
$$;

-- Say which sources of these tables were emptied or rewritten since the snapshot of this transaction, which
-- shows them empty from then on. The snapshot shows the file that they had, the function the one they have.
CREATE FUNCTION pgtrickle.rewritten_since(moving bigint[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT string_agg(DISTINCT d.source_name, ', ')
          FROM pgtrickle.pgt_dependencies d
         CROSS JOIN LATERAL unnest(pgtrickle.table_with_children(d.source_relid)) AS part (relid)
          JOIN pg_class c ON c.oid = part.relid
         WHERE d.pgt_id = ANY (moving) AND c.relfilenode <> 0
           AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid));
END
$$;

CREATE FUNCTION pgtrickle.refuse_rewritten(moving bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found text := pgtrickle.rewritten_since(moving);
BEGIN
    IF found IS NOT NULL THEN
        RAISE EXCEPTION '% was emptied or rewritten after the snapshot was taken', found USING ERRCODE = 'HW302';
    END IF;
END
$$;

-- What capture functions ask before they name a column: whether source, buffer and the tables below the
-- source are still those that the function was made for.
--
-- `is_captured` is not immutable, and says so all the same: a plan has its answer as a constant, so that
-- writers do not pay for the question. The arguments of type regclass make that right. A plan is made anew
-- when a relation that it names by such a constant is altered, and then it asks again. Under a frozen
-- snapshot the answer may be of yesterday, and must not be kept: it is NULL, and `look_at_capture` is asked.
CREATE FUNCTION pgtrickle.look_at_capture(source regclass, buffer regclass, carriers regclass[])
RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN pgtrickle.fits_buffer(source, buffer)
       AND pgtrickle.table_with_children(source)
           = ARRAY(SELECT c::oid FROM unnest(carriers) AS c ORDER BY c::oid);
END
$$;

CREATE FUNCTION pgtrickle.is_captured(source regclass, buffer regclass, carriers regclass[])
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN NULL;
    END IF;
    RETURN pgtrickle.look_at_capture(source, buffer, carriers);
END
$$;

-- The same for the functions of an IMMEDIATE table: whether it and all that it reads are as they were.
CREATE FUNCTION pgtrickle.look_at_sources(own_id bigint, relations regclass[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN pgtrickle.drift_of(own_id) IS NULL AND pgtrickle.obstacle_of(own_id) IS NULL
       AND NOT pgtrickle.has_other_partitions(own_id)
       AND EXISTS (SELECT FROM pgtrickle.pgt_stream_tables st
                     JOIN pg_class c ON c.oid = st.pgt_relid AND c.relname = st.pgt_name
                     JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = st.pgt_schema
                    WHERE st.pgt_id = own_id AND st.status = 'ACTIVE');
END
$$;

CREATE FUNCTION pgtrickle.is_followed(own_id bigint, relations regclass[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN NULL;
    END IF;
    RETURN pgtrickle.look_at_sources(own_id, relations);
END
$$;

-- Functions are not relations: no constant names them so that a plan would ask again.
CREATE FUNCTION pgtrickle.look_at_functions(own_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM pgtrickle.pgt_function_uses f
         WHERE f.pgt_id = own_id
           AND f.fingerprint IS DISTINCT FROM pgtrickle.function_fingerprint(f.function_oid));
END
$$;

-- The tables that carry the triggers of an IMMEDIATE table: its source and all that are below.
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN carriers oid[];

CREATE FUNCTION pgtrickle.has_other_partitions(own_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
                    WHERE d.pgt_id = own_id AND d.carriers IS NOT NULL
                      AND d.carriers <> pgtrickle.table_with_children(d.source_relid));
END
$$;

-- Whether triggers that maintain a table are missing or disabled.
CREATE FUNCTION pgtrickle.lacks_triggers(own_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pgtrickle.pgt_stream_tables st JOIN pgtrickle.pgt_dependencies d USING (pgt_id)
         CROSS JOIN LATERAL unnest(d.carriers) AS carrier (relid)
         CROSS JOIN LATERAL (VALUES ('insert'), ('update'), ('delete'), ('truncate'), ('truncated')) AS e (kind)
         WHERE st.pgt_id = own_id AND NOT (st.effective_mode = 'COMMIT' AND e.kind = 'truncated')
           AND NOT EXISTS (SELECT FROM pg_trigger g
                            WHERE g.tgrelid = carrier.relid AND g.tgenabled = 'A'
                              AND g.tgname = format('pgt_imm_%s_%s_%s', own_id, d.source_relid, e.kind)));
END
$$;

-- Say why writers do not maintain a table that they should maintain; NULL: they do.
CREATE FUNCTION pgtrickle.unfollowed(own_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(pgtrickle.alteration_of(own_id), pgtrickle.obstacle_of(own_id),
                    CASE WHEN pgtrickle.has_other_partitions(own_id)
                         THEN 'a source has other partitions than before'
                         WHEN pgtrickle.lacks_triggers(own_id)
                         THEN 'triggers that maintain it are missing or disabled' END);
END
$$;

-- Put the triggers of an IMMEDIATE table on a source and all that are below it now, and take them from what
-- was.
CREATE FUNCTION pgtrickle.put_all_triggers(own_id bigint, source oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    carrier oid;
    wanted oid[] := pgtrickle.table_with_children(source);
    stray record;
BEGIN
    FOR stray IN
        SELECT g.tgname, g.tgrelid::regclass AS shown FROM pg_trigger g
         WHERE starts_with(g.tgname, format('pgt_imm_%s_%s_', own_id, source)) AND g.tgrelid <> ALL (wanted)
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', stray.tgname, stray.shown);
    END LOOP;
    FOREACH carrier IN ARRAY wanted LOOP
        PERFORM pgtrickle.put_triggers(own_id, source, carrier);
    END LOOP;
    UPDATE pgtrickle.pgt_dependencies d SET carriers = wanted
     WHERE d.pgt_id = own_id AND d.source_relid = source;
END
$$;

CREATE FUNCTION pgtrickle.blocks_source_ddl() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT coalesce(lower(current_setting('pg_trickle.block_source_ddl', true))
                    IN ('on', 'true', 'yes', '1'), false);
END;

CREATE FUNCTION pgtrickle.refuse_ddl(shown text, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'the stream table % is in the way: %', shown, why
        USING ERRCODE = 'dependent_objects_still_exist',
              HINT = 'Alter or drop the stream table first, or set pg_trickle.block_source_ddl = off.';
END
$$;

-- A writer met functions of an IMMEDIATE table that were made for other sources. It goes on without them,
-- and the table says that it does not follow: a refresh compiles it again.
CREATE FUNCTION pgtrickle.note_altered(own_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    shown text;
    why text := coalesce(pgtrickle.drift_of(own_id), pgtrickle.obstacle_of(own_id),
                         'it was renamed, or partitions of a source came or went');
    is_seen boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM pgtrickle_state.since_%s)', own_id) INTO is_seen;
        IF NOT is_seen THEN
            RAISE EXCEPTION 'could not serialize access: a stream table follows its sources only since later'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END IF;
    IF pgtrickle.look_at_sources(own_id, '{}') AND pgtrickle.look_at_functions(own_id) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = own_id) THEN
        RAISE EXCEPTION 'the catalog does not know the stream table % any more', own_id
            USING ERRCODE = 'HW203',
                  DETAIL = 'Triggers here still follow it, and there is no row that could say that they do not.',
                  HINT = 'Run "headwater doctor --fix": it drops what is left over.';
    END IF;
    UPDATE pgtrickle.pgt_stream_tables st
       SET status = 'ERROR', last_error = why, needs_reinit = true, reinit_reason = why,
           data_timestamp = now(), updated_at = now()
     WHERE st.pgt_id = own_id AND st.status = 'ACTIVE'
    RETURNING format('%I.%I', st.pgt_schema, st.pgt_name) INTO shown;
    IF FOUND THEN
        PERFORM pg_notify('pg_trickle_alert', json_build_object('event', 'reinitialize_needed', 'st', shown,
                                                                'reason', left(why, 250))::text);
        RAISE WARNING 'the stream table % no longer follows its sources: %', shown, why
            USING HINT = 'Refresh it: that compiles its query again, or says what to alter.';
    END IF;
END
$$;

-- The stream tables that a command may concern: those that it touched, that read what it touched or a table
-- above that, have triggers there, or use a function that it touched; all if it touched a schema or a type.
CREATE FUNCTION pgtrickle.concerned_by(touched oid[]) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE above AS (
        SELECT t.relid FROM unnest(touched) AS t (relid)
        UNION
        SELECT i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.relid
    )
    SELECT d.pgt_id FROM pgtrickle.pgt_dependencies d JOIN above a ON a.relid = d.source_relid
    UNION
    SELECT d.pgt_id FROM pgtrickle.pgt_dependencies d WHERE d.carriers && touched
    UNION
    SELECT st.pgt_id FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_relid = ANY (touched)
    UNION
    SELECT f.pgt_id FROM pgtrickle.pgt_function_uses f WHERE f.function_oid = ANY (touched)
    UNION
    SELECT unnest(t.tracked_by_pgt_ids) FROM pgtrickle.pgt_change_tracking t WHERE t.leaves && touched
    UNION
    SELECT st.pgt_id FROM pgtrickle.pgt_stream_tables st
     WHERE EXISTS (SELECT FROM pg_namespace n WHERE n.oid = ANY (touched))
        OR EXISTS (SELECT FROM pg_type t WHERE t.oid = ANY (touched));
END
$$;

-- Tell those of the deferred stream tables whose sources a command altered. A dropped source is an error at
-- once; of all else the next refresh finds out whether the query still holds.
CREATE FUNCTION pgtrickle.mark_altered(touched oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own record;
    is_ours boolean := coalesce(current_setting('pg_trickle.refreshing', true) = 'on', false);
    concerned bigint[] := ARRAY(SELECT pgtrickle.concerned_by(touched));  -- else all are looked at, and then few
BEGIN
    FOR own IN
        SELECT st.pgt_id, format('%I.%I', st.pgt_schema, st.pgt_name) AS shown, st.needs_reinit,
               st.reinit_reason, drift.why,
               EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
                        WHERE d.pgt_id = st.pgt_id
                          AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = d.source_relid)) AS is_gone
          FROM pgtrickle.pgt_stream_tables st
         CROSS JOIN LATERAL pgtrickle.alteration_of(st.pgt_id) AS drift (why)
         WHERE st.pgt_id = ANY (concerned) AND st.effective_mode NOT IN ('IMMEDIATE', 'COMMIT')
           AND drift.why IS NOT NULL
           AND EXISTS (SELECT FROM pg_class c WHERE c.oid = st.pgt_relid)
         ORDER BY st.pgt_id
    LOOP
        IF NOT is_ours AND pgtrickle.blocks_source_ddl() THEN
            PERFORM pgtrickle.refuse_ddl(own.shown, own.why);
        END IF;
        -- Once is enough: a refresh that alters triggers would meet, under its snapshot, one that moves the row.
        CONTINUE WHEN own.needs_reinit AND (NOT own.is_gone OR own.reinit_reason = own.why);
        UPDATE pgtrickle.pgt_stream_tables st
           SET needs_reinit = true, updated_at = now(),
               reinit_reason = CASE WHEN st.needs_reinit AND NOT own.is_gone
                                    THEN coalesce(st.reinit_reason, own.why) ELSE own.why END,
               status = CASE WHEN own.is_gone AND st.status = 'ACTIVE' THEN 'ERROR' ELSE st.status END,
               last_error = CASE WHEN own.is_gone THEN own.why ELSE st.last_error END
         WHERE st.pgt_id = own.pgt_id;
        CONTINUE WHEN own.needs_reinit;
        PERFORM pg_notify('pg_trickle_alert', json_build_object('event', 'reinitialize_needed',
                              'st', own.shown, 'reason', left(own.why, 250))::text);
    END LOOP;
END
$$;

-- The same for an IMMEDIATE table, whose functions go.
CREATE FUNCTION pgtrickle.stop_following(own_id bigint, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    shown text;
BEGIN
    SELECT format('%I.%I', st.pgt_schema, st.pgt_name) INTO shown
      FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = own_id;
    IF pgtrickle.blocks_source_ddl() THEN
        PERFORM pgtrickle.refuse_ddl(shown, why);
    END IF;
    PERFORM pgtrickle.remove_following(own_id);
    UPDATE pgtrickle.pgt_stream_tables
       SET status = 'ERROR', last_error = why, needs_reinit = true, reinit_reason = why,
           data_timestamp = now(), updated_at = now()
     WHERE pgt_id = own_id;
    PERFORM pg_notify('pg_trickle_alert', json_build_object('event', 'reinitialize_needed', 'st', shown,
                                                            'reason', left(why, 250))::text);
    RAISE WARNING 'the stream table % no longer follows its sources: %', shown, why
        USING HINT = 'Refresh it: that compiles its query again, or says what to alter.';
END
$$;

-- Where no event trigger tells of it, and no writer comes by: the daemon looks for tables that are not maintained
-- any more, and stops them. What is being computed anew, or cannot be locked at once, is let be until later.
CREATE FUNCTION pgtrickle.stop_unfollowed() RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
    SET client_min_messages = error
AS $$
DECLARE
    own record;
    why text;
BEGIN
    PERFORM set_config('pg_trickle.installing', 'on', true);  -- what follows is DDL
    PERFORM set_config('pg_trickle.block_source_ddl', 'off', true);  -- what was altered cannot be refused now
    FOR own IN
        SELECT st.pgt_id, format('%I.%I', st.pgt_schema, st.pgt_name) AS shown
          FROM pgtrickle.pgt_stream_tables st
         WHERE st.effective_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE' AND st.is_populated
           AND EXISTS (SELECT FROM pg_class c WHERE c.oid = st.pgt_relid)
           AND pgtrickle.unfollowed(st.pgt_id) IS NOT NULL
         ORDER BY st.pgt_id
           FOR UPDATE SKIP LOCKED
    LOOP
        why := pgtrickle.unfollowed(own.pgt_id);  -- as it is now that nobody else moves the row
        CONTINUE WHEN why IS NULL;
        BEGIN
            PERFORM pgtrickle.stop_following(own.pgt_id, why);
            RETURN NEXT own.shown;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            CONTINUE;
        END;
    END LOOP;
    PERFORM set_config('pg_trickle.installing', 'off', true);
END
$$;

-- Partitions came or went: those that came are given triggers, those that went lose them, and the rows are
-- computed anew.
CREATE FUNCTION pgtrickle.follow_partitions(own_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pgtrickle.put_all_triggers(own_id, d.source_relid)
       FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = own_id AND d.carriers IS NOT NULL;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        EXECUTE format('SELECT pgtrickle_state.follow_%s_anew()', own_id);
    ELSE
        PERFORM pgtrickle.stop_following(own_id, 'a source has other partitions than before');
    END IF;
END
$$;

-- After any command that may alter a source or a stream table.
CREATE FUNCTION pgtrickle.follow_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own record;
    why text;
    touched oid[];
    concerned bigint[];  -- NULL: perhaps all
BEGIN
    IF NOT pgtrickle.is_at_home() THEN  -- the oids on record are those of another database
        RETURN;
    END IF;
    IF current_setting('pg_trickle.capturing', true) = 'on' THEN  -- our own triggers alter nothing
        RETURN;
    END IF;
    IF TG_EVENT = 'sql_drop' THEN
        touched := ARRAY(SELECT CASE WHEN o.object_type IN ('policy', 'trigger', 'rule')
                                     THEN to_regclass(format('%I.%I', o.address_names[1], o.address_names[2]))::oid
                                     ELSE o.objid END
                           FROM pg_event_trigger_dropped_objects() o);
    ELSE
        touched := ARRAY(SELECT coalesce(p.polrelid, o.objid)
                           FROM pg_event_trigger_ddl_commands() o
                           LEFT JOIN pg_policy p ON p.oid = o.objid AND o.classid = 'pg_policy'::regclass);
    END IF;
    PERFORM pgtrickle.mark_altered(touched);
    IF current_setting('pg_trickle.installing', true) = 'on' THEN
        RETURN;
    END IF;
    PERFORM set_config('pg_trickle.installing', 'on', true);  -- what follows is DDL too
    -- To look at a table takes a millisecond, and others make tables all the time. Of an index that goes
    -- nobody says whose it was.
    IF TG_EVENT <> 'sql_drop' OR NOT EXISTS (SELECT FROM pg_event_trigger_dropped_objects() o
                                              WHERE o.object_type = 'index' AND o.original) THEN
        concerned := ARRAY(SELECT pgtrickle.concerned_by(touched));
    END IF;
    FOR own IN
        SELECT st.pgt_id, st.pgt_schema, st.pgt_name, c.relname, n.nspname
          FROM pgtrickle.pgt_stream_tables st
          LEFT JOIN pg_class c ON c.oid = st.pgt_relid
          LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE st.effective_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE' AND st.is_populated
           AND (concerned IS NULL OR st.pgt_id = ANY (concerned))
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
        why := coalesce(pgtrickle.alteration_of(own.pgt_id), pgtrickle.obstacle_of(own.pgt_id));
        IF why IS NOT NULL THEN
            PERFORM pgtrickle.stop_following(own.pgt_id, why);
        ELSIF pgtrickle.has_other_partitions(own.pgt_id) THEN
            PERFORM pgtrickle.follow_partitions(own.pgt_id);
        ELSIF pgtrickle.lacks_triggers(own.pgt_id) THEN
            PERFORM pgtrickle.stop_following(own.pgt_id, pgtrickle.unfollowed(own.pgt_id));
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
            WHEN TAG IN ('ALTER TABLE', 'CREATE TABLE', 'ALTER SCHEMA', 'CREATE VIEW', 'ALTER VIEW',
                         'CREATE FUNCTION', 'ALTER FUNCTION', 'ALTER TYPE', 'CREATE POLICY', 'ALTER POLICY')
            EXECUTE FUNCTION pgtrickle.follow_ddl();
        CREATE EVENT TRIGGER pgt_follow_drop ON sql_drop EXECUTE FUNCTION pgtrickle.follow_ddl();
    END IF;
END
$$;

-- Whether some of these tables need a closer look before they can move: never filled, suspended, failed,
-- renamed, given away, read by the clock, computed as a whole, over altered sources or ones that hide other rows, without their
-- triggers or with those for other columns, which a column that was renamed and renamed back leaves behind.
CREATE FUNCTION pgtrickle.need_a_look(moving bigint[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pgtrickle.pgt_stream_tables st
       LEFT JOIN pg_class c ON c.oid = st.pgt_relid
       LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE st.pgt_id = ANY (moving)
        AND (st.status <> 'ACTIVE' OR NOT st.is_populated OR st.needs_reinit OR st.epoch IS NULL
             OR st.plan ? 'timed'
             OR NOT (st.effective_mode = 'DIFFERENTIAL' OR st.effective_engine = 'spark')
             OR c.relname IS DISTINCT FROM st.pgt_name OR n.nspname IS DISTINCT FROM st.pgt_schema
             OR c.relowner <> st.owner);
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM pgtrickle.pgt_dependencies d
      WHERE d.pgt_id = ANY (moving)
        AND (NOT pgtrickle.still_holds(
                 d.fingerprint, pgtrickle.source_fingerprint(d.source_relid, d.columns_used))
             OR NOT pgtrickle.policy_holds(d)
             OR CASE WHEN EXISTS (
                         SELECT FROM jsonb_each(coalesce(nullif(d.fingerprint -> 'columns', 'null'), '{}'))
                                         AS c (name, mark)
                          WHERE c.mark -> 6 <> 'null')
                     THEN pgtrickle.alteration_of(d.pgt_id) IS NOT NULL ELSE false END);
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM pgtrickle.pgt_function_uses f
      WHERE f.pgt_id = ANY (moving)
        AND f.fingerprint IS DISTINCT FROM pgtrickle.function_fingerprint(f.function_oid);
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM pgtrickle.pgt_change_tracking t
     CROSS JOIN LATERAL pgtrickle.table_with_children(t.source_relid) AS carriers
      WHERE t.tracked_by_pgt_ids && moving
        AND (cardinality(carriers) <> 1 + cardinality(t.leaves) OR NOT carriers @> t.leaves
             OR NOT pgtrickle.fits_buffer(t.source_relid, to_regclass(t.buffer_name))
             OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
                         WHERE d.source_relid = t.source_relid AND d.pgt_id = ANY (moving)
                           AND d.pgt_id = ANY (t.tracked_by_pgt_ids) AND NOT d.columns_used <@ t.columns)
             OR 4 * cardinality(carriers) > (
                SELECT count(*) FROM pg_trigger g
                 WHERE g.tgrelid = ANY (carriers) AND g.tgenabled = 'A'
                   AND g.tgname LIKE t.trigger_name || '\_%'));
    RETURN FOUND;
END
$$;
