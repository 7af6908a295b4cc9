-- The daemon: who leads, and whether all is well.

-- The one who leads says so here; whether it still does, its lock tells.
CREATE TABLE pgtrickle.pgt_leader (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    backend_pid int NOT NULL,
    host text NOT NULL,
    process_id int NOT NULL,
    version text NOT NULL,
    since timestamptz NOT NULL,
    last_wake timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION pgtrickle.is_led() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT EXISTS (
        SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
           AND d.datname = current_database()
           AND (l.classid::bigint << 32) | l.objid::bigint = 7522525836535488868);  -- "headlead"
END;

CREATE VIEW pgtrickle.pgt_daemon AS
SELECT pgtrickle.is_led() AS is_running, pgtrickle.is_served() AS serves_requests,
       l.host, l.process_id, l.backend_pid, l.version, l.since, l.last_wake
  FROM (SELECT) AS one_row
  LEFT JOIN pgtrickle.pgt_leader l ON true;

-- One row for each thing that is wrong, with its fix; none: all is well. Buffers are measured by the
-- server's statistics, so that this is cheap at any size.
CREATE FUNCTION pgtrickle.health_check()
RETURNS TABLE (severity text, "check" text, subject text, detail text, fix text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    most bigint := coalesce(substring(current_setting('pg_trickle.buffer_alert_rows', true)
                                      FROM '^\s*([0-9]{1,18})\s*$'), '1000000')::bigint;
BEGIN
    IF NOT pgtrickle.is_at_home() THEN  -- what follows would look at other relations
        RETURN QUERY
        SELECT 'error', 'restored', NULL::text,
               'the catalog came from another database, by a dump or a copy'::text,
               'headwater init --restore, or SELECT * FROM pgtrickle.restore_stream_tables()'::text;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'warning', 'daemon', NULL::text, 'no daemon runs for this database'::text,
           'start one: headwater run'::text
     WHERE NOT pgtrickle.is_led()
       AND EXISTS (SELECT FROM pgtrickle.pgt_stream_tables st
                    WHERE (st.effective_mode IN ('IMMEDIATE', 'COMMIT')) IS NOT TRUE);
    RETURN QUERY
    SELECT 'warning', 'enabled', NULL::text, 'no refresh is started: pg_trickle.enabled is off'::text,
           format('ALTER DATABASE %I RESET pg_trickle.enabled', current_database())
     WHERE lower(current_setting('pg_trickle.enabled', true)) IN ('off', 'false', '0', 'no');
    RETURN QUERY
    SELECT CASE st.status WHEN 'ERROR' THEN 'error' ELSE 'warning' END, lower(st.status),
           format('%I.%I', st.pgt_schema, st.pgt_name),
           coalesce(st.last_error, 'it was suspended by hand'),
           CASE WHEN st.status = 'SUSPENDED'
                THEN format('act on the error if there is one, then SELECT pgtrickle.resume_stream_table(%L)',
                            format('%I.%I', st.pgt_schema, st.pgt_name))
                WHEN st.effective_mode IN ('IMMEDIATE', 'COMMIT')
                THEN format('act on the error, then SELECT pgtrickle.refresh_stream_table(%L)',
                            format('%I.%I', st.pgt_schema, st.pgt_name))
                ELSE 'act on the error; it is tried again by itself' END
      FROM pgtrickle.pgt_stream_tables st
     WHERE st.status IN ('ERROR', 'SUSPENDED')
     ORDER BY 3;
    RETURN QUERY
    SELECT 'error', 'not followed', format('%I.%I', st.pgt_schema, st.pgt_name), found.why,
           format('SELECT pgtrickle.refresh_stream_table(%L)', format('%I.%I', st.pgt_schema, st.pgt_name))
      FROM pgtrickle.pgt_stream_tables st
     CROSS JOIN LATERAL pgtrickle.unfollowed(st.pgt_id) AS found (why)
     WHERE st.effective_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE' AND st.is_populated
       AND found.why IS NOT NULL
     ORDER BY 3;
    RETURN QUERY
    WITH RECURSIVE held AS (
        SELECT st.pgt_id, st.pgt_id AS cause, false AS by_group FROM pgtrickle.pgt_stream_tables st
         WHERE st.status IN ('SUSPENDED', 'ERROR')
        UNION
        SELECT other.pgt_id, h.cause, h.by_group OR other.by_group
          FROM held h JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = h.pgt_id
         CROSS JOIN LATERAL (
               SELECT d.pgt_id, false AS by_group FROM pgtrickle.pgt_dependencies d
                WHERE d.source_relid = st.pgt_relid
               UNION ALL
               SELECT unnest(g.members), true FROM pgtrickle.pgt_refresh_groups g
                WHERE st.pgt_id = ANY (g.members)) AS other
    )
    SELECT 'warning', 'held', format('%I.%I', st.pgt_schema, st.pgt_name),
           format('it cannot move past %I.%I, which %s and which is %s', c.pgt_schema, c.pgt_name,
                  CASE WHEN h.by_group THEN 'moves with its refresh group' ELSE 'it reads' END,
                  lower(c.status)),
           format('see to %I.%I', c.pgt_schema, c.pgt_name)
      FROM (SELECT pgt_id, cause, bool_and(held.by_group) AS by_group FROM held GROUP BY 1, 2) AS h
      JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = h.pgt_id
      JOIN pgtrickle.pgt_stream_tables c ON c.pgt_id = h.cause
     WHERE h.pgt_id <> h.cause
     ORDER BY 3, 4;
    RETURN QUERY
    SELECT 'warning', 'lag', format('%I.%I', i.pgt_schema, i.pgt_name),
           format('its data are %s old, and %s was asked for',
                  date_trunc('second', i.current_lag), i.target_lag),
           'see its last refreshes: pgtrickle.refresh_history; give it a longer schedule or the daemon'
           ' more refreshes at once (pg_trickle.max_concurrent_refreshes)'
      FROM pgtrickle.stream_tables_info i
     WHERE i.status = 'ACTIVE' AND i.lag_exceeded AND i.current_lag > 2 * i.target_lag
     ORDER BY 3;
    RETURN QUERY
    SELECT 'error', 'capture', h.source_name,
           'triggers that capture its changes are missing or disabled'::text,
           'refresh a stream table that reads it: triggers are put back, and the table is rebuilt'::text
      FROM pgtrickle.check_cdc_health() h
     WHERE NOT h.triggers_enabled
     ORDER BY 3;
    RETURN QUERY
    SELECT 'warning', 'buffer', t.source_name,
           format('about %s changes wait', pg_stat_get_live_tuples(to_regclass(t.buffer_name))),
           'refresh or resume the stream tables that read it'::text
      FROM pgtrickle.pgt_change_tracking t
     WHERE pg_stat_get_live_tuples(to_regclass(t.buffer_name)) > most
     ORDER BY 3;
    RETURN QUERY
    SELECT 'warning', 'lost refresh', format('%I.%I', st.pgt_schema, st.pgt_name),
           format('refresh %s stands as running, and its session is gone', r.refresh_id),
           'none needed: the next refresh of the table, or a daemon that starts, closes it'::text
      FROM pgtrickle.pgt_refresh_history r JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)
     WHERE r.status = 'RUNNING'
       AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = r.backend_pid)
     ORDER BY 3;
    RETURN QUERY
    SELECT 'warning', 'requests', NULL::text,
           format('%s requests wait, and nobody serves them', count(*)),
           'start the daemon: headwater run; or headwater serve-requests'::text
      FROM pgtrickle.pgt_requests q
     WHERE q.status = 'queued' AND NOT pgtrickle.is_served()
    HAVING count(*) > 0;
END
$$;

-- The same as move_if_unchanged, for many tables in one transaction: those for which nothing came, and all
-- that moves with them, stand at one new epoch; their ids are returned. What needs a closer look, or has
-- changes, is left alone; if anything is locked, all are.
CREATE FUNCTION pgtrickle.move_all_unchanged(own_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owners bigint[];  -- each as often as it has members, which stand beside it
    members bigint[];
    busy bigint[];
    places text[];
    own_snapshot pg_snapshot;
    own_epoch bigint;
    moment timestamptz;
    test record;
    is_pending boolean;
BEGIN
    SELECT array_agg(o.id), array_agg(m.id) INTO owners, members
      FROM unnest(own_ids) AS o (id) CROSS JOIN LATERAL unnest(pgtrickle.moved_with(o.id)) AS m (id);
    IF pgtrickle.need_a_look(members) THEN
        SELECT array_agg(p.owner), array_agg(p.member) INTO owners, members
          FROM unnest(owners, members) AS p (owner, member)
         WHERE p.owner IN (SELECT o.id FROM unnest(own_ids) AS o (id)
                            WHERE NOT pgtrickle.need_a_look(pgtrickle.moved_with(o.id)));
    END IF;
    BEGIN
        SELECT array_agg(format('%I.%I', st.pgt_schema, st.pgt_name)) INTO places
          FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = ANY (members);
        IF places IS NULL THEN
            RETURN '{}';
        END IF;
        EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE NOWAIT', array_to_string(places, ', '));
        SELECT array_agg(DISTINCT t.buffer_name) INTO places
          FROM pgtrickle.pgt_change_tracking t
          JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = ANY (t.tracked_by_pgt_ids)
         WHERE st.pgt_id = ANY (members) AND st.effective_engine = 'spark';
        IF places IS NOT NULL THEN
            EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE NOWAIT',
                           array_to_string(places, ', '));
        END IF;
    EXCEPTION WHEN lock_not_available OR insufficient_privilege THEN
        RETURN '{}';  -- the refresh of each finds out, and says so
    END;
    own_snapshot := pg_current_snapshot();
    FOR test IN
        SELECT t.buffer_name, e.snapshot, e.xid, array_agg(st.pgt_id) AS readers
          FROM pgtrickle.pgt_stream_tables st
          JOIN pgtrickle.pgt_epochs e ON e.epoch = st.epoch
          JOIN pgtrickle.pgt_change_tracking t ON st.pgt_id = ANY (t.tracked_by_pgt_ids)
         WHERE st.pgt_id = ANY (members)
         GROUP BY t.buffer_name, e.epoch
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE NOT (pg_visible_in_snapshot(__xid, $1)'
                       ' OR __xid = $2))', test.buffer_name)
           INTO is_pending USING test.snapshot, test.xid;
        IF is_pending THEN
            busy := busy || test.readers;
        END IF;
    END LOOP;
    SELECT array_agg(p.owner), array_agg(p.member) INTO owners, members
      FROM unnest(owners, members) AS p (owner, member)
     WHERE p.owner NOT IN (SELECT q.owner FROM unnest(owners, members) AS q (owner, member)
                            WHERE q.member = ANY (busy));
    IF owners IS NULL THEN
        RETURN '{}';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO pgtrickle.pgt_epochs (snapshot, xid, data_timestamp)
    VALUES (own_snapshot, pg_current_xact_id(), clock_timestamp())
    RETURNING epoch, data_timestamp INTO own_epoch, moment;
    UPDATE pgtrickle.pgt_stream_tables st
       SET epoch = own_epoch, data_timestamp = moment, last_refresh_at = moment, updated_at = now(),
           frontier = jsonb_build_object('epoch', own_epoch, 'snapshot', own_snapshot::text,
               'xid', pg_current_xact_id()::text, 'data_timestamp', moment)
     WHERE st.pgt_id = ANY (members);
    INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, data_timestamp, start_time, end_time, action,
           status, delta_rows, epoch, engine, backend_pid)
    SELECT st.pgt_id, moment, moment, clock_timestamp(), 'NO_DATA', 'COMPLETED', 0,
           own_epoch, st.effective_engine, pg_backend_pid()
      FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = ANY (members);
    RETURN ARRAY(SELECT DISTINCT o FROM unnest(owners) AS o);
END
$$;
