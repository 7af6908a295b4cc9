-- COMMIT tables: followed once for each transaction, when it is about to end.

-- One row for a transaction with something to follow, from its first write until it was followed.
CREATE UNLOGGED TABLE pgtrickle.pgt_commits (xid xid8 PRIMARY KEY)
    WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- Of queued tables the one that no other queued one stands below.
CREATE FUNCTION pgtrickle.next_queued(queued bigint[]) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE below AS (
            SELECT q.pgt_id AS top, q.pgt_id, 0 AS depth FROM unnest(queued) AS q (pgt_id)
            UNION ALL
            SELECT b.top, st.pgt_id, b.depth + 1
              FROM below b JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = b.pgt_id
              JOIN pgtrickle.pgt_stream_tables st ON st.pgt_relid = d.source_relid
        )
        SELECT b.top FROM below b GROUP BY b.top ORDER BY max(b.depth), b.top LIMIT 1);
END
$$;

-- Follow one table; an error tells which, and at which keys. A conflict is for the client to know. It and what
-- calls it return something, since PL/pgSQL evaluates an assignment without the work of a query.
CREATE FUNCTION pgtrickle.follow_one(own_id bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    state text;
    message text;
    detail text;
    hint text;
    keys text;
BEGIN
    EXECUTE format('SELECT pgtrickle_state.follow_%s()', own_id);
    RETURN true;
EXCEPTION
    WHEN transaction_rollback OR lock_not_available THEN
        RAISE;
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
        BEGIN
            EXECUTE format('SELECT pgtrickle_state.follow_%s_keys()', own_id) INTO keys;
        EXCEPTION WHEN OTHERS THEN
            keys := NULL;  -- the fault is in the key itself, and the message tells of it
        END;
        RAISE EXCEPTION '%', format('%s%s cannot follow this transaction: %s',
                (SELECT format('%I.%I', st.pgt_schema, st.pgt_name)
                   FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = own_id),
                coalesce(', at ' || keys || ',', ''), message)
            USING ERRCODE = state,
                  DETAIL = coalesce(nullif(detail, ''), 'The table follows its query when a transaction ends.'),
                  HINT = coalesce(nullif(hint, ''), 'Write something else, or alter or suspend the stream table.');
END
$$;

-- Called when the transaction is about to end, or by SET CONSTRAINTS: follow what is queued, each table after
-- those that it reads. An asterisk in the queue tells who joins meanwhile that no other marker is needed. In
-- the middle of a statement, which changed perhaps more than its triggers have told so far, all waits for the
-- end again.
CREATE FUNCTION pgtrickle.at_commit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    queued bigint[];
    own_id bigint;
    rest text;
    is_done boolean;
BEGIN
    DELETE FROM pgtrickle.pgt_commits c WHERE c.xid = pg_current_xact_id();
    IF pg_trigger_depth() > 1 THEN
        SET CONSTRAINTS pgtrickle.pgt_at_commit DEFERRED;
        INSERT INTO pgtrickle.pgt_commits (xid) VALUES (pg_current_xact_id());
        RETURN NULL;
    END IF;
    LOOP
        queued := string_to_array(nullif(btrim(current_setting('pg_trickle.queued', true), ' *'), ''), ' ');
        EXIT WHEN queued IS NULL;
        own_id := CASE WHEN cardinality(queued) = 1 THEN queued[1]
                       ELSE coalesce(pgtrickle.next_queued(queued), queued[1]) END;
        queued := array_remove(queued, own_id);
        rest := set_config('pg_trickle.queued', concat('* ', array_to_string(queued, ' '), ' '), true);
        IF to_regproc(format('pgtrickle_state.follow_%s', own_id)) IS NOT NULL THEN
            is_done := pgtrickle.follow_one(own_id);
        END IF;
    END LOOP;
    rest := set_config('pg_trickle.queued', '', true);
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER pgt_at_commit AFTER INSERT ON pgtrickle.pgt_commits
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pgtrickle.at_commit();
ALTER TABLE pgtrickle.pgt_commits ENABLE ALWAYS TRIGGER pgt_at_commit;

-- Bring COMMIT tables up to date now, for a transaction that wants to read them.
CREATE FUNCTION pgtrickle.flush_commit() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(current_setting('pg_trickle.queued', true), '') = '' THEN
        RETURN;
    END IF;
    IF pg_trigger_depth() > 0 THEN
        RAISE EXCEPTION 'flush_commit() cannot be called inside a trigger'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = 'The statement under way may have changed more than its triggers have told so far.',
                  HINT = 'Call it as a statement of its own.';
    END IF;
    SET CONSTRAINTS pgtrickle.pgt_at_commit IMMEDIATE;
    SET CONSTRAINTS pgtrickle.pgt_at_commit DEFERRED;
END
$$;

-- Documents: which stream table holds those of an entity, the view that they are computed by, and
-- the columns by which they are found and linked to others.
CREATE TABLE pgtrickle.pgt_tviews (
    pgt_id bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    entity text NOT NULL,
    view_relid oid NOT NULL,
    owns_view boolean NOT NULL,  -- the view was made with it, and goes with it
    key_columns text[] NOT NULL,
    link_columns text[] NOT NULL,
    data_column text NOT NULL
);

-- In the order in which they follow. `level` counts the stream tables below; `followed` counts the
-- transactions that moved it, `recomputed` those of them that computed all of it, as far as the
-- server's statistics tell.
CREATE VIEW pgtrickle.tviews AS
WITH RECURSIVE below AS (
    SELECT t.pgt_id AS top, t.pgt_id, 0 AS depth FROM pgtrickle.pgt_tviews t
    UNION ALL
    SELECT b.top, st.pgt_id, b.depth + 1
      FROM below b JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = b.pgt_id
      JOIN pgtrickle.pgt_stream_tables st ON st.pgt_relid = d.source_relid
)
SELECT t.entity,
       st.pgt_relid::regclass AS tview,
       t.view_relid::regclass AS view,
       t.key_columns,
       t.link_columns,
       t.data_column,
       (SELECT max(b.depth) FROM below b WHERE b.top = t.pgt_id) AS level,
       ARRAY(SELECT other.entity FROM pgtrickle.pgt_dependencies d
               JOIN pgtrickle.pgt_stream_tables source ON source.pgt_relid = d.source_relid
               JOIN pgtrickle.pgt_tviews other ON other.pgt_id = source.pgt_id
              WHERE d.pgt_id = t.pgt_id ORDER BY other.entity) AS embeds,
       pg_stat_get_function_calls(to_regproc('pgtrickle_state.follow_' || t.pgt_id)) AS followed,
       pg_stat_get_function_calls(to_regproc(format('pgtrickle_state.follow_%s_recompute', t.pgt_id)))
           AS recomputed
  FROM pgtrickle.pgt_tviews t JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)
 ORDER BY level, t.entity;

-- Says when a document last changed; a refresh writes no other rows.
CREATE FUNCTION pgtrickle.touch_document() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.updated_at := pg_catalog.now();
    RETURN NEW;
END
$$;

-- The key is pk_<entity> and the view v_<entity> unless they are named; without a query the view is
-- there already.
CREATE FUNCTION pgtrickle.create_tview(
    name text, query text DEFAULT NULL, key text[] DEFAULT NULL, data text DEFAULT 'data',
    view text DEFAULT NULL, patches boolean DEFAULT false) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('create_tview', jsonb_build_object(
        'name', name, 'query', query, 'key', key, 'data', data, 'view', view, 'patches', patches),
        current_setting('search_path'));
END;

-- What became of documents, in order for each of them. kind: `insert` and `replace` give the whole document,
-- `update` a merge patch (RFC 7396) from the one before, `delete` nothing.
CREATE TABLE pgtrickle.pgt_patches (
    patch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL,
    pgt_id bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('insert', 'update', 'replace', 'delete')),
    key jsonb NOT NULL,
    patch jsonb
);
CREATE INDEX pgt_patches_xid ON pgtrickle.pgt_patches (xid);

-- The smallest merge patch from one document to another; NULL if there is none, since a patch cannot give
-- a member the value null: there that means to remove it.
CREATE FUNCTION pgtrickle.merge_patch(was jsonb, becomes jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    patch jsonb := '{}';
    part jsonb;
    member record;
BEGIN
    IF jsonb_typeof(becomes) <> 'object' THEN
        RETURN becomes;
    END IF;
    IF jsonb_typeof(was) IS DISTINCT FROM 'object' THEN
        was := '{}';  -- so a patch takes it
    END IF;
    FOR member IN
        SELECT key, w.value AS was, b.value AS becomes
          FROM jsonb_each(was) AS w FULL JOIN jsonb_each(becomes) AS b USING (key)
         WHERE w.value::text IS DISTINCT FROM b.value::text  -- 1.0 = 1.00, and is written otherwise
    LOOP
        IF jsonb_typeof(member.becomes) = 'null' THEN
            RETURN NULL;
        END IF;
        part := CASE WHEN member.becomes IS NULL THEN 'null'
                     ELSE pgtrickle.merge_patch(member.was, member.becomes) END;
        IF part IS NULL THEN
            RETURN NULL;
        END IF;
        patch := patch || jsonb_build_object(member.key, part);
    END LOOP;
    RETURN patch;
END
$$;

-- On a table of documents whose patches are wanted; the arguments are its id, the column of the document, and
-- those of the key. A row whose document stays is no news.
CREATE FUNCTION pgtrickle.note_patch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own jsonb := coalesce(to_jsonb(NEW), to_jsonb(OLD));
    was jsonb := to_jsonb(OLD) -> TG_ARGV[1];
    becomes jsonb := to_jsonb(NEW) -> TG_ARGV[1];
    kind text := lower(TG_OP);
    patch jsonb;
BEGIN
    IF TG_OP = 'INSERT' THEN
        patch := becomes;
    ELSIF TG_OP = 'UPDATE' THEN
        IF was::text = becomes::text THEN
            RETURN NULL;
        END IF;
        patch := pgtrickle.merge_patch(was, becomes);
        IF patch IS NULL THEN
            kind := 'replace';
            patch := becomes;
        END IF;
    END IF;
    INSERT INTO pgtrickle.pgt_patches (xid, pgt_id, kind, key, patch)
    VALUES (pg_current_xact_id(), TG_ARGV[0]::bigint, kind,
            (SELECT jsonb_object_agg(k, own -> k) FROM unnest(TG_ARGV[2:]) AS k), patch);
    RETURN NULL;
END
$$;

CREATE FUNCTION pgtrickle.forget_patches() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM pgtrickle.pgt_patches p WHERE p.pgt_id = OLD.pgt_id;
    RETURN NULL;
END
$$;

CREATE TRIGGER pgt_forget_patches AFTER DELETE ON pgtrickle.pgt_tviews
    FOR EACH ROW EXECUTE FUNCTION pgtrickle.forget_patches();

-- How far a reader of now can see: every transaction but those that have not ended, of which one is the
-- reader's own. A number would not do: a lower one may be committed after a higher one was read.
CREATE FUNCTION pgtrickle.patch_position() RETURNS pg_snapshot
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN own IS NULL OR own >= pg_snapshot_xmax(seen) THEN seen
                ELSE format('%s:%s:%s', least(own, pg_snapshot_xmin(seen)), pg_snapshot_xmax(seen),
                            (SELECT string_agg(x::text, ',' ORDER BY x)
                               FROM (SELECT pg_snapshot_xip(seen) UNION SELECT own) AS u (x)))::pg_snapshot END
      FROM (SELECT pg_current_snapshot() AS seen, pg_current_xact_id_if_assigned() AS own) AS q;
END;

-- What was committed after a position, of all documents or those of one table; all that is there if it is
-- NULL. The position of the rows is the one to read on from.
CREATE FUNCTION pgtrickle.patches(after pg_snapshot DEFAULT NULL, tview regclass DEFAULT NULL)
RETURNS TABLE (patch_id bigint, xid xid8, entity text, kind text, key jsonb, patch jsonb,
               "position" pg_snapshot)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p.patch_id, p.xid, t.entity, p.kind, p.key, p.patch, here.position
      FROM pgtrickle.pgt_patches p
      JOIN pgtrickle.pgt_tviews t ON t.pgt_id = p.pgt_id
      JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = p.pgt_id
     CROSS JOIN pgtrickle.patch_position() AS here (position)
     CROSS JOIN (SELECT coalesce(patches.after, '1:1:')) AS last (seen)
     WHERE p.xid >= pg_snapshot_xmin(last.seen) AND NOT pg_visible_in_snapshot(p.xid, last.seen)
       AND pg_visible_in_snapshot(p.xid, here.position)
       AND (patches.tview IS NULL OR st.pgt_relid = patches.tview)
     ORDER BY p.patch_id;
END;

-- Delete what a reader at a position has read; all that is committed if it is NULL. Returns how many went.
CREATE FUNCTION pgtrickle.trim_patches(before pg_snapshot DEFAULT NULL) RETURNS bigint
LANGUAGE sql
BEGIN ATOMIC
    WITH gone AS (
        DELETE FROM pgtrickle.pgt_patches p
         USING (SELECT coalesce(trim_patches.before, pgtrickle.patch_position())) AS last (seen)
         WHERE p.xid < pg_snapshot_xmax(last.seen) AND pg_visible_in_snapshot(p.xid, last.seen)
        RETURNING 1)
    SELECT count(*) FROM gone;
END;

-- The query of a statement CREATE TABLE … AS that makes a table of this name and does nothing else. NULL if
-- that is not certain: a semicolon may be one in a text, or may begin another statement.
CREATE FUNCTION pgtrickle.query_of_create(statement text, schema text, name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    word CONSTANT text := '(?:"(?:[^"]|"")+"|[\w$]+)';
    head CONSTANT text := format('^(?:\s|--[^\n]*\n)*create\s+table\s+(?:if\s+not\s+exists\s+)?'
                                 '(%s(?:\s*\.\s*%s)?)\s+as\M', word, word);
    named text[] := parse_ident((regexp_match(statement, head, 'i'))[1]);
    query text := regexp_replace(regexp_replace(statement, head, '', 'i'), ';\s*$', '');
BEGIN
    IF named IS NULL OR named NOT IN (ARRAY[name], ARRAY[schema, name]) OR strpos(query, ';') > 0 THEN
        RETURN NULL;
    END IF;
    RETURN regexp_replace(query, '\swith\s+(no\s+)?data\s*$', '', 'i');
END
$$;

-- Make a tview of a table that was just made: the table goes, and comes again as one. `path` is the caller's
-- search_path.
CREATE FUNCTION pgtrickle.make_tview(created oid, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own record;
    query text;
BEGIN
    IF NOT pgtrickle.is_at_home() THEN
        RETURN;
    END IF;
    SELECT n.nspname, c.relname INTO own
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = created;
    query := pgtrickle.query_of_create(current_query(), own.nspname, own.relname);
    IF query IS NULL THEN
        RAISE EXCEPTION '% cannot become a tview', created::regclass
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'Its query is known only if CREATE TABLE name AS query is sent as a statement of'
                           ' its own, without options and with no semicolon inside.',
                  HINT = 'Call pgtrickle.create_tview(name, query); for a plain table, SET'
                         ' pg_trickle.create_table_as = off.';
    END IF;
    EXECUTE format('DROP TABLE %s', created::regclass);
    PERFORM pgtrickle.carry_out('create_tview',
        jsonb_build_object('name', format('%I.%I', own.nspname, own.relname), 'query', query), path);
END
$$;

-- With pg_trickle.create_table_as on, CREATE TABLE tv_x AS SELECT … makes a tview. It runs as whoever creates
-- a table, under his search_path, and for all others it must not need a right on this schema.
CREATE FUNCTION pgtrickle.make_tviews() RETURNS event_trigger
LANGUAGE plpgsql
AS $$
DECLARE
    path text := pg_catalog.current_setting('search_path');
    made oid;
BEGIN
    IF pg_catalog.lower(pg_catalog.current_setting('pg_trickle.create_table_as', true))
           IN ('on', 'true', 'yes', '1')
       AND pg_catalog.current_setting('pg_trickle.installing', true) IS DISTINCT FROM 'on'
    THEN
        FOR made IN
            SELECT c.oid FROM pg_catalog.pg_event_trigger_ddl_commands() AS d
              JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) d.objid
             WHERE c.relkind OPERATOR(pg_catalog.=) 'r' AND c.relpersistence OPERATOR(pg_catalog.=) 'p'
               AND pg_catalog.starts_with(c.relname, 'tv_')
        LOOP
            PERFORM pgtrickle.make_tview(made, path);
        END LOOP;
    END IF;
END
$$;

-- Only a superuser may create event triggers; without this one such a table is a plain table.
DO $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        CREATE EVENT TRIGGER pgt_make_tviews ON ddl_command_end WHEN TAG IN ('CREATE TABLE AS')
            EXECUTE FUNCTION pgtrickle.make_tviews();
    END IF;
END
$$;
