-- The catalog. The installer runs this with search_path = pg_catalog, pg_temp, inside one transaction.

CREATE SCHEMA pgtrickle;
CREATE SCHEMA pgtrickle_changes;
CREATE SCHEMA pgtrickle_state;
COMMENT ON SCHEMA pgtrickle IS 'headwater: catalog and functions';
COMMENT ON SCHEMA pgtrickle_changes IS 'headwater: change buffers and capture functions';
COMMENT ON SCHEMA pgtrickle_state IS 'headwater: private state of stream tables';

CREATE TABLE pgtrickle.pgt_catalog_version (
    version int PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Where this catalog lives. It names relations by their oids and changes by the numbers of their
-- transactions. In a database into which a dump was restored, or that was copied as a template, these
-- are other relations and other transactions, or none.
CREATE TABLE pgtrickle.pgt_home (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    identity text NOT NULL
);

-- Server, database, and the catalog itself: a dump may come back into the database that it is of.
CREATE FUNCTION pgtrickle.own_identity() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT format('%s-%s-%s', c.system_identifier, d.oid, 'pgtrickle.pgt_home'::regclass::oid)
      FROM pg_control_system() c, pg_database d
     WHERE d.datname = current_database();
END;

CREATE FUNCTION pgtrickle.is_at_home() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM pgtrickle.pgt_home h
                    WHERE h.identity = pgtrickle.own_identity());
END;

INSERT INTO pgtrickle.pgt_home (identity) VALUES (pgtrickle.own_identity());

-- A snapshot taken by a refresher. A buffer row written by transaction x belongs to epoch e
-- when pg_visible_in_snapshot(x, e.snapshot) OR x = e.xid.
CREATE TABLE pgtrickle.pgt_epochs (
    epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    snapshot pg_snapshot NOT NULL,
    xid xid8 NOT NULL,
    data_timestamp timestamptz NOT NULL,
    in_lake boolean NOT NULL DEFAULT false  -- a trace has rows of this epoch
);

CREATE TABLE pgtrickle.pgt_stream_tables (
    pgt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_relid oid NOT NULL UNIQUE,
    pgt_name text NOT NULL,
    pgt_schema text NOT NULL,
    defining_query text NOT NULL,  -- as the user gave it
    canonical_query text,
    schedule text,  -- as the user gave it; NULL = DOWNSTREAM
    target_lag interval,
    refresh_mode text NOT NULL
        CHECK (refresh_mode IN ('AUTO', 'DIFFERENTIAL', 'FULL', 'IMMEDIATE', 'COMMIT')),
    effective_mode text,
    status text NOT NULL DEFAULT 'INITIALIZING'
        CHECK (status IN ('INITIALIZING', 'ACTIVE', 'SUSPENDED', 'ERROR')),
    is_populated boolean NOT NULL DEFAULT false,
    data_timestamp timestamptz,
    frontier jsonb,
    epoch bigint REFERENCES pgtrickle.pgt_epochs,
    last_refresh_at timestamptz,
    consecutive_errors int NOT NULL DEFAULT 0,
    last_error text,
    needs_reinit boolean NOT NULL DEFAULT false,
    reinit_reason text,
    engine text NOT NULL DEFAULT 'auto' CHECK (engine IN ('auto', 'postgres', 'spark')),
    effective_engine text,
    reason text,  -- why this engine and this mode
    cdc_mode text,
    publish boolean NOT NULL DEFAULT true,
    owner oid NOT NULL,
    plan jsonb,  -- the compiled operator tree
    key_columns text[],
    pinned_settings jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (pgt_schema, pgt_name)
) WITH (fillfactor = 50, toast_tuple_target = 256);  -- every refresh updates a few columns of its row

CREATE TABLE pgtrickle.pgt_dependencies (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    source_relid oid NOT NULL,
    source_type text NOT NULL CHECK (source_type IN
        ('TABLE', 'VIEW', 'STREAM_TABLE', 'FOREIGN_TABLE', 'MATERIALIZED_VIEW')),
    source_name text NOT NULL,  -- qualified, quoted
    columns_used text[],
    fingerprint jsonb,
    policy jsonb,  -- of its row-level security, what applies to the owner of the stream table
    PRIMARY KEY (pgt_id, source_relid)
);
CREATE INDEX pgt_dependencies_source ON pgtrickle.pgt_dependencies (source_relid);

CREATE TABLE pgtrickle.pgt_refresh_history (
    refresh_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    data_timestamp timestamptz,
    start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    end_time timestamptz,
    action text NOT NULL
        CHECK (action IN ('NO_DATA', 'DIFFERENTIAL', 'FULL', 'REINITIALIZE', 'SKIP')),
    rows_inserted bigint NOT NULL DEFAULT 0,
    rows_updated bigint NOT NULL DEFAULT 0,
    rows_deleted bigint NOT NULL DEFAULT 0,
    delta_rows bigint,  -- change rows read from the sources
    error_message text,
    error_code text,
    error_class text,
    status text NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED')),
    epoch bigint,
    engine text,
    reason text,
    timings jsonb,
    backend_pid int
);
CREATE INDEX pgt_refresh_history_newest
    ON pgtrickle.pgt_refresh_history (pgt_id, refresh_id DESC);
CREATE INDEX pgt_refresh_history_running
    ON pgtrickle.pgt_refresh_history (pgt_id) WHERE status = 'RUNNING';

CREATE TABLE pgtrickle.pgt_change_tracking (
    source_relid oid PRIMARY KEY,
    source_name text NOT NULL,
    trigger_name text,
    function_name text,
    buffer_name text,  -- qualified, quoted
    columns text[] NOT NULL DEFAULT '{}',
    all_columns boolean NOT NULL DEFAULT false,
    tracked_by_pgt_ids bigint[] NOT NULL DEFAULT '{}',
    leaves oid[] NOT NULL DEFAULT '{}',  -- partitions and children that carry triggers
    last_consumed_epoch bigint,
    generation bigint NOT NULL DEFAULT 0  -- the transaction since which no change was missed
);

-- A copy of a source in the lake: everything that came and went up to `epoch`, in the Delta version
-- named here; what a crash left beyond that version does not count. It was read with the rights of
-- `owner` under `pinned_settings`. It is whole while the capture has the same `generation` and the
-- source the same `fingerprint`. Without readers its files are about to be deleted.
CREATE TABLE pgtrickle.pgt_traces (
    trace_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_relid oid NOT NULL,
    url text NOT NULL UNIQUE,
    columns jsonb NOT NULL,  -- by position: SQL over a row of the source, and its type
    columns_used text[] NOT NULL,  -- the columns of the source that those read
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    since bigint NOT NULL,  -- the earliest epoch that it can show: of the load, until compaction
    owner oid NOT NULL,
    pinned_settings jsonb NOT NULL,
    generation bigint NOT NULL,
    fingerprint jsonb
);
CREATE INDEX pgt_traces_source ON pgtrickle.pgt_traces (source_relid);

CREATE TABLE pgtrickle.pgt_trace_readers (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    source_relid oid NOT NULL,
    trace_id bigint NOT NULL REFERENCES pgtrickle.pgt_traces,
    PRIMARY KEY (pgt_id, source_relid)
);
CREATE INDEX pgt_trace_readers_trace ON pgtrickle.pgt_trace_readers (trace_id);

CREATE TABLE pgtrickle.pgt_refresh_groups (
    group_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_name text NOT NULL UNIQUE,
    members bigint[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A table whose writers wait for each other whatever they write has a single lock; the locks were
-- counted by the ANALYZE that follows their making.
CREATE VIEW pgtrickle.pgt_ivm_state AS
SELECT st.pgt_id,
       CASE WHEN locks.reltuples = 1 THEN 'EXCLUSIVE' ELSE 'ROW_EXCLUSIVE' END AS lock_mode,
       (st.frontier ->> 'xid')::xid8 AS last_update_xid,
       st.is_populated
  FROM pgtrickle.pgt_stream_tables st
  LEFT JOIN pg_class locks ON locks.relname = 'locks_' || st.pgt_id
                          AND locks.relnamespace = to_regnamespace('pgtrickle_state')
 WHERE st.refresh_mode = 'IMMEDIATE';

-- An active IMMEDIATE table follows its sources inside the writing transaction: it has no lag.
CREATE VIEW pgtrickle.stream_tables_info AS
SELECT st.*,
       lag.current_lag,
       coalesce(st.schedule IS NOT NULL AND lag.current_lag > st.target_lag, false) AS lag_exceeded
  FROM pgtrickle.pgt_stream_tables st
 CROSS JOIN LATERAL (
       SELECT CASE WHEN st.refresh_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE' AND st.is_populated
                   THEN interval '0'
                   ELSE now() - st.data_timestamp END AS current_lag) lag;

CREATE VIEW pgtrickle.pgt_status AS
SELECT format('%I.%I', pgt_schema, pgt_name) AS name,
       status,
       refresh_mode,
       target_lag,
       current_lag,
       last_refresh_at AS last_refresh,
       consecutive_errors AS errors,
       data_timestamp,
       coalesce(effective_engine, engine) AS engine,
       effective_mode,
       reason
  FROM pgtrickle.stream_tables_info
 ORDER BY pgt_schema, pgt_name;

-- The lag of a refresh is the age of the data at the moment it became readable. An updated row
-- counts as one deleted and one inserted.
CREATE VIEW pgtrickle.pg_stat_stream_tables AS
SELECT st.pgt_id,
       st.pgt_schema,
       st.pgt_name,
       total.refresh_count,
       total.total_refresh_duration_ms,
       total.rows_inserted_total,
       total.rows_deleted_total,
       total.skip_count,
       total.error_count,
       newest.lag_ms AS last_lag_ms,
       total.max_lag_ms
  FROM pgtrickle.pgt_stream_tables st
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE h.status = 'COMPLETED') AS refresh_count,
              coalesce(1000 * extract(epoch FROM sum(h.end_time - h.start_time)
                       FILTER (WHERE h.status = 'COMPLETED')), 0)::double precision
                  AS total_refresh_duration_ms,
              coalesce(sum(h.rows_inserted + h.rows_updated)
                       FILTER (WHERE h.status = 'COMPLETED'), 0)::bigint AS rows_inserted_total,
              coalesce(sum(h.rows_deleted + h.rows_updated)
                       FILTER (WHERE h.status = 'COMPLETED'), 0)::bigint AS rows_deleted_total,
              count(*) FILTER (WHERE h.status = 'SKIPPED') AS skip_count,
              count(*) FILTER (WHERE h.status = 'FAILED') AS error_count,
              (1000 * extract(epoch FROM max(h.end_time - h.data_timestamp)
                       FILTER (WHERE h.status = 'COMPLETED')))::double precision AS max_lag_ms
         FROM pgtrickle.pgt_refresh_history h
        WHERE h.pgt_id = st.pgt_id) total
  LEFT JOIN LATERAL (
       SELECT (1000 * extract(epoch FROM h.end_time - h.data_timestamp))::double precision AS lag_ms
         FROM pgtrickle.pgt_refresh_history h
        WHERE h.pgt_id = st.pgt_id AND h.status = 'COMPLETED'
          AND h.end_time IS NOT NULL AND h.data_timestamp IS NOT NULL
        ORDER BY h.refresh_id DESC
        LIMIT 1) newest ON true;

CREATE FUNCTION pgtrickle.pgt_status() RETURNS SETOF pgtrickle.pgt_status
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT s.* FROM pgtrickle.pgt_status s;
END;

-- Names mean what they mean to the caller, so this function and refresh_history run under the
-- caller's search_path; a body of the form BEGIN ATOMIC was bound to its objects above and looks
-- nothing else up. Order: the relation of that name; else the catalog's own names, where a table
-- dropped by hand still stands: the schema given, else those on the search_path, else the only one.
CREATE FUNCTION pgtrickle.stream_table_id(given_name text) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH parsed AS (
        SELECT parse_ident(given_name)::name[]::text[] AS parts,
               to_regclass(given_name)::oid AS relid
    ), given AS (
        SELECT p.relid,
               p.parts[cardinality(p.parts)] AS table_name,
               coalesce(p.parts[cardinality(p.parts) - 1], n.nspname::text) AS schema_name
          FROM parsed p
          LEFT JOIN pg_class c ON c.oid = p.relid
          LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
    ), candidates AS (
        SELECT st.pgt_id,
               CASE WHEN st.pgt_relid = g.relid THEN 0
                    ELSE array_position(current_schemas(true)::text[], st.pgt_schema) END AS place,
               count(*) OVER () AS candidates
          FROM pgtrickle.pgt_stream_tables st
          JOIN given g ON st.pgt_relid = g.relid
               OR (st.pgt_name = g.table_name
                   AND st.pgt_schema = coalesce(g.schema_name, st.pgt_schema))
    )
    SELECT CASE WHEN c.place IS NOT NULL OR c.candidates = 1 THEN c.pgt_id END
      FROM candidates c
     ORDER BY c.place NULLS LAST
     LIMIT 1;
END;

CREATE FUNCTION pgtrickle.refresh_history(pgt_name text, max_rows int DEFAULT 20)
RETURNS SETOF pgtrickle.pgt_refresh_history
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT h.*
      FROM pgtrickle.pgt_refresh_history h
     WHERE h.pgt_id = pgtrickle.stream_table_id(refresh_history.pgt_name)
     ORDER BY h.refresh_id DESC
     LIMIT max_rows;
END;

CREATE FUNCTION pgtrickle.st_graph()
RETURNS TABLE (pgt_name text, source_name text, source_type text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT format('%I.%I', st.pgt_schema, st.pgt_name), d.source_name, d.source_type
      FROM pgtrickle.pgt_dependencies d
      JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = d.pgt_id
     ORDER BY 1, 2;
END;

-- Exact counts; NULL for a buffer that is gone.
CREATE FUNCTION pgtrickle.change_buffer_sizes()
RETURNS TABLE (source_name text, pending_rows bigint, bytes bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    buffer regclass;
BEGIN
    FOR source_name, buffer IN
        SELECT t.source_name, to_regclass(t.buffer_name)
          FROM pgtrickle.pgt_change_tracking t
         ORDER BY t.source_name
    LOOP
        pending_rows := NULL;
        bytes := NULL;
        IF buffer IS NOT NULL THEN
            EXECUTE format('SELECT count(*) FROM %s', buffer) INTO pending_rows;
            -- A partitioned buffer has no bytes of its own; a plain one has no partition tree.
            SELECT coalesce(sum(pg_total_relation_size(p.relid)), pg_total_relation_size(buffer))
              INTO bytes
              FROM pg_partition_tree(buffer) p;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Healthy: the source and each leaf carry enabled triggers of ours for INSERT (4), DELETE (8) and
-- UPDATE (16), TRUNCATE (32) is caught somewhere, and none of ours is disabled or replica-only.
CREATE FUNCTION pgtrickle.check_cdc_health()
RETURNS TABLE (source_name text, trigger_name text, triggers_enabled boolean,
               selective_capture boolean, tracked_by bigint[], columns text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT t.source_name, t.trigger_name, health.is_whole, NOT t.all_columns,
           t.tracked_by_pgt_ids, t.columns
      FROM pgtrickle.pgt_change_tracking t
     CROSS JOIN LATERAL (
           SELECT bool_and(coalesce(ours.events & 28 = 28 AND ours.all_enabled, false))
                  AND coalesce(bit_or(ours.events) & 32 = 32, false) AS is_whole
             FROM unnest(t.source_relid || t.leaves) AS carrier (relid)
             LEFT JOIN LATERAL (
                  SELECT bit_or(g.tgtype::int) AS events,
                         bool_and(g.tgenabled IN ('O', 'A')) AS all_enabled
                    FROM pg_trigger g
                   WHERE g.tgrelid = carrier.relid
                     AND (starts_with(g.tgname, format('pg_trickle_cdc_%s_', t.source_relid))
                          OR starts_with(g.tgname, format('pg_trickle_cdc_%s_', carrier.relid)))
                  ) ours ON true) health
     ORDER BY t.source_name;
END;

-- Stands on every stream table. A refresh says that it is one; anybody else is refused.
CREATE FUNCTION pgtrickle.guard_stream_table() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('pg_trickle.refreshing', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION '%.% is a stream table: it follows its query and takes no % from outside',
                quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME), TG_OP
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Write to its sources instead.';
    END IF;
    RETURN NULL;
END
$$;

-- Stands in the view that has the name of a stream table whose result is in the lake only.
CREATE FUNCTION pgtrickle.not_published(stream_table text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '% is a stream table whose result is in the lake only', stream_table
        USING ERRCODE = 'object_not_in_prerequisite_state',
              HINT = 'Read it with Spark: read_at, or what "headwater lake-view" prints.';
END
$$;

-- What is written of a type that a user made into the functions that writers call: its name, and those of
-- its labels or attributes. NULL: it is the server's own.
CREATE FUNCTION pgtrickle.type_fingerprint(type_oid oid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_object(
                   'name', format('%I.%I', t.typnamespace::regnamespace::name, t.typname),
                   'labels', (SELECT jsonb_agg(e.enumlabel ORDER BY e.enumsortorder)
                                FROM pg_enum e WHERE e.enumtypid = t.oid),
                   'attributes', (SELECT jsonb_agg(jsonb_build_array(a.attname, a.attnum, a.atttypid::int8))
                                    FROM pg_attribute a
                                   WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped))
          FROM pg_type own JOIN pg_type t ON t.oid = coalesce(nullif(own.typelem, 0), own.oid)
         WHERE own.oid = type_oid AND t.oid >= 16384);
END
$$;

-- What maintenance relies on in a source: its name, its kind, that no parent is written in its
-- place, the columns used, what is unique, a view's definition. The xmin of a column and the files of
-- the table tell, if both are others, that values were rewritten: ALTER COLUMN TYPE … USING fires no trigger.
-- PL/pgSQL, because it keeps the plans of its statements: this runs before every refresh.
CREATE FUNCTION pgtrickle.source_fingerprint(relid oid, columns text[]) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_object(
            'columns', (SELECT jsonb_object_agg(a.attname, jsonb_build_array(
                               a.attnum, a.atttypid::int8, a.atttypmod, a.attcollation::int8,
                               a.attnotnull, a.xmin::text,
                               CASE WHEN a.atttypid >= 16384
                                    THEN pgtrickle.type_fingerprint(a.atttypid) END))
                          FROM pg_attribute a
                         WHERE a.attrelid = relid AND a.attname = ANY (columns)
                           AND NOT a.attisdropped),
            'files', (SELECT jsonb_agg(part.relfilenode::int8 ORDER BY part.oid) FROM pg_class part
                       WHERE part.oid = ANY (CASE WHEN c.relhassubclass
                                                  THEN pgtrickle.table_with_children(relid)
                                                  ELSE ARRAY[relid] END)),
            'virtual', (SELECT jsonb_agg(d.xmin::text ORDER BY a.attnum)
                          FROM pg_attribute a
                          JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                         WHERE a.attrelid = relid AND a.attgenerated = 'v'),
            'unique', (SELECT jsonb_agg(i.indkey::text ORDER BY i.indexrelid)
                         FROM pg_index i
                        WHERE i.indrelid = relid AND i.indisunique AND i.indisvalid),
            'rule', CASE WHEN c.relkind = 'v' THEN (SELECT max(r.xmin::text)
                                                      FROM pg_rewrite r WHERE r.ev_class = relid)
                    END,
            'relation', jsonb_build_array(
                c.relnamespace::regnamespace::text, c.relname, c.relkind, c.relpersistence,
                EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = relid)))
          FROM pg_class c
         WHERE c.oid = relid);
END
$$;

-- Drops the private states of a stream table: of its root aggregate and of those inside.
CREATE FUNCTION pgtrickle.drop_states(own_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    state regclass;
BEGIN
    FOR state IN
        SELECT c.oid FROM pg_class c
         WHERE c.relnamespace = 'pgtrickle_state'::regnamespace AND c.relkind = 'r'
           AND c.relname ~ format('^(state|kept)_%s(_[0-9]+)*$', own_id)
    LOOP
        EXECUTE format('DROP TABLE %s', state);
    END LOOP;
END
$$;

CREATE FUNCTION pgtrickle.table_with_children(relid oid) RETURNS oid[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pg_inherits i WHERE i.inhparent = relid;
    IF NOT FOUND THEN
        RETURN ARRAY[relid];
    END IF;
    RETURN (
        WITH RECURSIVE tree AS (
            SELECT relid AS member
            UNION
            SELECT i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.member
        )
        SELECT array_agg(member ORDER BY member) FROM tree);
END
$$;

-- Records that a refresh runs now and returns its id; others see it once the caller commits.
-- Refreshes that still stand there as running although their session ended are failed. That commit
-- is asynchronous: a crash that loses the row also ends the refresh.
CREATE FUNCTION pgtrickle.start_refresh(own_id bigint, expected text, by_engine text, at_epoch bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own_refresh bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE pgtrickle.pgt_refresh_history h
       SET status = 'FAILED', end_time = clock_timestamp(), error_class = 'system',
           error_message = 'the refreshing process ended before the refresh did'
     WHERE h.pgt_id = own_id AND h.status = 'RUNNING'
       AND (h.backend_pid = pg_backend_pid()
            OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = h.backend_pid));
    INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, action, status, engine, epoch, backend_pid)
    VALUES (own_id, expected, 'RUNNING', by_engine, at_epoch, pg_backend_pid())
    RETURNING refresh_id INTO own_refresh;
    RETURN own_refresh;
END
$$;

-- What to lock, in order, so that IMMEDIATE tables can follow when these tables move: they move
-- under the snapshot of a refresh, and whoever else moved them since would make it fail. Each is
-- represented by what its writers come to first.
CREATE FUNCTION pgtrickle.followers_of(moving bigint[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pgtrickle.pgt_stream_tables st
      WHERE st.effective_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE' LIMIT 1;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        WITH RECURSIVE moved AS (
            SELECT st.pgt_relid, 0 AS depth
              FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = ANY (moving)
            UNION ALL
            SELECT st.pgt_relid, m.depth + 1
              FROM moved m JOIN pgtrickle.pgt_dependencies d ON d.source_relid = m.pgt_relid
              JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = d.pgt_id
             WHERE st.effective_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE'
        )
        SELECT coalesce(to_regclass('pgtrickle_state.locks_' || st.pgt_id),
                        to_regclass('pgtrickle_state.state_' || st.pgt_id),
                        st.pgt_relid::regclass)::text
          FROM moved m JOIN pgtrickle.pgt_stream_tables st USING (pgt_relid)
         WHERE m.depth > 0 AND st.pgt_id <> ALL (moving)
         GROUP BY st.pgt_id, st.pgt_relid ORDER BY max(m.depth), st.pgt_id);
END
$$;

-- All that a refresh must know of stream tables: their rows, the epochs at which they stand, their owners,
-- which of the others each one reads, how their sources are captured, and how many pages a table has, or its
-- state if that is larger: of the disk, since statistics may be of another time.
CREATE FUNCTION pgtrickle.standings(moving bigint[])
RETURNS TABLE (st pgtrickle.pgt_stream_tables, stands pgtrickle.pgt_epochs, owner text,
               reads bigint[], sources jsonb, pages bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT own, e, (SELECT r.rolname::text FROM pg_roles r WHERE r.oid = own.owner),
           ARRAY(SELECT other.pgt_id FROM pgtrickle.pgt_dependencies d
                   JOIN pgtrickle.pgt_stream_tables other ON other.pgt_relid = d.source_relid
                  WHERE d.pgt_id = own.pgt_id AND other.pgt_id = ANY (moving)
                  ORDER BY d.source_relid),
           (SELECT jsonb_agg(to_jsonb(t) || jsonb_build_object(
                       'source_relid', t.source_relid::int8, 'leaves', t.leaves::int8[])
                       ORDER BY t.source_relid)
              FROM pgtrickle.pgt_change_tracking t WHERE own.pgt_id = ANY (t.tracked_by_pgt_ids)),
           greatest(pg_relation_size(own.pgt_relid), pg_relation_size(
               to_regclass('pgtrickle_state.state_' || own.pgt_id)))
               / current_setting('block_size')::bigint
      FROM pgtrickle.pgt_stream_tables own
      LEFT JOIN pgtrickle.pgt_epochs e ON e.epoch = own.epoch
     WHERE own.pgt_id = ANY (moving)
     ORDER BY own.pgt_id;
END
$$;

-- For each source of a stream table, how many changes it has not seen, and how many of those ask for a
-- rebuild. NULL for a table that was never filled or follows no changes, and for one that reads a table which
-- moves with it: those changes are yet to come.
CREATE FUNCTION pgtrickle.unseen_changes(own_id bigint, moving bigint[]) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    counts text;
    found jsonb;
BEGIN
    SELECT string_agg(format(
               'SELECT %s, count(*), count(*) FILTER (WHERE __weight = 0) FROM %s'
               ' WHERE NOT (pg_visible_in_snapshot(__xid, %L) OR __xid = %L)',
               t.source_relid::int8, t.buffer_name, e.snapshot, e.xid), ' UNION ALL ')
      INTO counts
      FROM pgtrickle.pgt_stream_tables st
      JOIN pgtrickle.pgt_epochs e ON e.epoch = st.epoch
      JOIN pgtrickle.pgt_change_tracking t ON st.pgt_id = ANY (t.tracked_by_pgt_ids)
     WHERE st.pgt_id = own_id
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
                         JOIN pgtrickle.pgt_stream_tables other ON other.pgt_relid = d.source_relid
                        WHERE d.pgt_id = own_id AND other.pgt_id = ANY (moving));
    IF counts IS NOT NULL THEN
        EXECUTE format('SELECT jsonb_agg(jsonb_build_array(relid, changes, markers))'
                       ' FROM (%s) AS counted (relid, changes, markers)', counts) INTO found;
    END IF;
    RETURN found;
END
$$;

-- The whole of a refresh with nothing to do, in one call. `pgt_ids` begins with the table's own id;
-- `names` are those of all the tables, `buffers` of what tables on Spark read: their epochs must be
-- numbered in the order of their snapshots, so whoever takes one holds a lock on the buffer. Every statement
-- keeps its plan, since this runs before every refresh. Verdicts:
--   unfit    something needs a closer look: never filled, altered sources, missing triggers, FULL
--            on PostgreSQL
--   pending  some source has changes, or another refresh runs; `running` is the history row of the
--            refresh that must follow
--   moved    nothing had changed; the table and all it reads now stand at the new epoch
-- The snapshot that becomes the epoch is taken before the buffers are looked at: what the look would
-- find of later commits is no harm, it only makes the verdict 'pending'. The move is committed
-- asynchronously: losing it in a crash loses no more than the news that nothing had changed.
CREATE FUNCTION pgtrickle.move_if_unchanged(own_id bigint)
RETURNS TABLE (verdict text, name text, pgt_ids bigint[], epoch bigint,
               data_timestamp timestamptz, running bigint, names text[], buffers text[],
               followers text[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    on_spark boolean;
    tests text;
    is_pending boolean;
    own_snapshot pg_snapshot;
    own_engine text;
    own_mode text;
BEGIN
    SELECT format('%I.%I', st.pgt_schema, st.pgt_name), pgtrickle.moved_with(own_id),
           st.effective_engine, st.effective_mode
      INTO name, pgt_ids, own_engine, own_mode
      FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = own_id;
    IF pgt_ids IS NULL OR pgtrickle.need_a_look(pgt_ids) THEN
        verdict := 'unfit';
        RETURN NEXT;
        RETURN;
    END IF;
    -- Before the snapshot of the move, as a refresh does: one that runs now would find its row
    -- moved under it and fail.
    SELECT array_agg(format('%I.%I', st.pgt_schema, st.pgt_name)),
           bool_or(st.effective_engine = 'spark')
      INTO names, on_spark
      FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = ANY (pgt_ids);
    IF on_spark THEN
        SELECT array_agg(DISTINCT t.buffer_name) INTO buffers
          FROM pgtrickle.pgt_change_tracking t
          JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = ANY (t.tracked_by_pgt_ids)
         WHERE st.pgt_id = ANY (pgt_ids) AND st.effective_engine = 'spark';
    END IF;
    BEGIN
        EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE NOWAIT',
                       array_to_string(names, ', '));
        IF buffers IS NOT NULL THEN
            EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE NOWAIT',
                           array_to_string(buffers, ', '));
        END IF;
    EXCEPTION WHEN lock_not_available THEN
        verdict := 'pending';
        running := pgtrickle.start_refresh(own_id, own_mode, own_engine, NULL);
        followers := pgtrickle.followers_of(pgt_ids);
        RETURN NEXT;
        RETURN;
    END;
    own_snapshot := pg_current_snapshot();
    SELECT 'SELECT ' || string_agg(format(
               'EXISTS (SELECT FROM %s WHERE NOT (pg_visible_in_snapshot(__xid, %L) OR __xid = %L))',
               t.buffer_name, e.snapshot, e.xid), ' OR ')
      INTO tests
      FROM pgtrickle.pgt_stream_tables st
      JOIN pgtrickle.pgt_epochs e ON e.epoch = st.epoch
      LEFT JOIN pgtrickle.pgt_change_tracking t ON st.pgt_id = ANY (t.tracked_by_pgt_ids)
     WHERE st.pgt_id = ANY (pgt_ids) AND t.buffer_name IS NOT NULL;
    IF tests IS NOT NULL THEN
        EXECUTE tests INTO is_pending;
    END IF;
    IF is_pending THEN
        verdict := 'pending';
        running := pgtrickle.start_refresh(own_id, own_mode, own_engine, NULL);
        followers := pgtrickle.followers_of(pgt_ids);
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO pgtrickle.pgt_epochs (snapshot, xid, data_timestamp)
    VALUES (own_snapshot, pg_current_xact_id(), clock_timestamp())
    RETURNING pgt_epochs.epoch, pgt_epochs.data_timestamp INTO epoch, data_timestamp;
    UPDATE pgtrickle.pgt_stream_tables st
       SET epoch = move_if_unchanged.epoch, data_timestamp = move_if_unchanged.data_timestamp,
           last_refresh_at = move_if_unchanged.data_timestamp, updated_at = now(),
           frontier = jsonb_build_object('epoch', move_if_unchanged.epoch,
               'snapshot', own_snapshot::text, 'xid', pg_current_xact_id()::text,
               'data_timestamp', move_if_unchanged.data_timestamp)
     WHERE st.pgt_id = ANY (pgt_ids);
    INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, data_timestamp, start_time, end_time, action,
           status, delta_rows, epoch, engine, backend_pid)
    SELECT member, move_if_unchanged.data_timestamp, transaction_timestamp(), clock_timestamp(),
           'NO_DATA', 'COMPLETED', 0, move_if_unchanged.epoch, own_engine, pg_backend_pid()
      FROM unnest(pgt_ids) AS member;
    verdict := 'moved';
    RETURN NEXT;
END
$$;
