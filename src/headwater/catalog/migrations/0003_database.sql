-- The verbs as SQL functions. Where the server has PL/Python and `headwater init --in-database` made the
-- function run_inside, they run in the server, in the caller's transaction. Elsewhere, and for
-- whatever needs Spark, they leave a request that `headwater serve-requests` carries out after commit.
--
-- All of these run with the rights of the caller, and names in queries mean what they mean to the caller:
-- the verbs hand the caller's search_path on. Their own bodies, of the form BEGIN ATOMIC, were bound
-- to their objects when they were made.

CREATE TABLE pgtrickle.pgt_requests (
    request_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    verb text NOT NULL,
    arguments jsonb NOT NULL,
    requester text NOT NULL DEFAULT current_user,  -- as whom it is carried out
    settings jsonb NOT NULL DEFAULT '{}',  -- of the requester's session, under which it is
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'done', 'failed')),
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    error_code text,
    error_message text,
    result jsonb
);
CREATE INDEX pgt_requests_open ON pgtrickle.pgt_requests (request_id)
    WHERE status IN ('queued', 'running');

-- Whoever serves holds this lock for as long as the connection lives.
CREATE FUNCTION pgtrickle.is_served() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT EXISTS (
        SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
           AND d.datname = current_database()
           AND (l.classid::bigint << 32) | l.objid::bigint = 7522525836636156275);  -- "headreqs"
END;

CREATE FUNCTION pgtrickle.request_status(request_id bigint)
RETURNS SETOF pgtrickle.pgt_requests
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT r.* FROM pgtrickle.pgt_requests r WHERE r.request_id = request_status.request_id;
END;

-- Returns the status at the end: done, or an error with the text of the failure.
CREATE FUNCTION pgtrickle.wait_for_request(request_id bigint, timeout interval DEFAULT '1 minute')
RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own pgtrickle.pgt_requests;
    until timestamptz := clock_timestamp() + timeout;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'HW-113: a request cannot be waited for in this transaction'
            USING ERRCODE = 'HW113', DETAIL = 'Under its one snapshot the status never changes.',
                  HINT = 'Wait in a transaction of level READ COMMITTED, the default.';
    END IF;
    LOOP
        SELECT r.* INTO own FROM pgtrickle.pgt_requests r
         WHERE r.request_id = wait_for_request.request_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'HW-103: there is no request %', request_id USING ERRCODE = 'HW103';
        END IF;
        IF own.status = 'failed' THEN
            RAISE EXCEPTION 'request % failed: %', request_id, own.error_message
                USING ERRCODE = CASE WHEN own.error_code ~ '^HW-\d{3}$'
                                     THEN replace(own.error_code, '-', '')
                                     WHEN own.error_code ~ '^[0-9A-Z]{5}$' THEN own.error_code
                                     ELSE 'HW901' END;
        END IF;
        IF own.status = 'done' OR clock_timestamp() >= until THEN
            RETURN own.status;
        END IF;
        PERFORM pg_sleep(0.05);
    END LOOP;
END
$$;

CREATE FUNCTION pgtrickle.queue_request(verb text, arguments jsonb, path text, reason text)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own_id bigint;
    own_settings jsonb;
BEGIN
    SELECT jsonb_object_agg(s, current_setting(s, true)) || jsonb_build_object('search_path', path)
      INTO own_settings
      FROM unnest(ARRAY[
           'TimeZone', 'DateStyle', 'IntervalStyle', 'extra_float_digits', 'bytea_output',
           'default_text_search_config', 'xmloption', 'xmlbinary', 'lc_monetary', 'lc_numeric',
           'lc_time', 'pg_trickle.min_target_lag_seconds', 'pg_trickle.default_engine',
           'pg_trickle.cdc_mode', 'pg_trickle.ivm_topk_max_limit', 'pg_trickle.max_grouping_sets'])
           AS s
     WHERE coalesce(current_setting(s, true), '') <> '';
    INSERT INTO pgtrickle.pgt_requests (verb, arguments, settings)
    VALUES (queue_request.verb, queue_request.arguments, own_settings)
    RETURNING request_id INTO own_id;
    PERFORM pg_notify('pg_trickle_requests', own_id::text);
    IF pgtrickle.is_served() THEN
        RAISE NOTICE 'request % will be carried out after COMMIT: %', own_id, reason
            USING HINT = format('SELECT pgtrickle.wait_for_request(%s), in a transaction of its own.',
                                own_id);
    ELSE
        RAISE WARNING 'request % waits, and nobody serves requests: %', own_id, reason
            USING HINT = 'Run "headwater run" or "headwater serve-requests" on this database.';
    END IF;
    RETURN own_id;
END
$$;

-- Runs a verb here or queues it; NULL if it is queued. `path` is the caller's search_path.
CREATE FUNCTION pgtrickle.carry_out(verb text, arguments jsonb, path text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    answer jsonb;
    fault jsonb;
    note text;
BEGIN
    IF to_regprocedure('pgtrickle.run_inside(text, jsonb, text)') IS NULL THEN
        PERFORM pgtrickle.queue_request(verb, arguments, path,
                                        'this server does not run headwater itself');
        RETURN NULL;
    END IF;
    answer := pgtrickle.run_inside(verb, arguments, path);
    fault := answer -> 'error';
    IF fault IS NOT NULL THEN
        IF fault ->> 'detail' IS NULL AND fault ->> 'hint' IS NULL THEN
            RAISE EXCEPTION USING MESSAGE = fault ->> 'message', ERRCODE = fault ->> 'sqlstate';
        ELSIF fault ->> 'hint' IS NULL THEN
            RAISE EXCEPTION USING MESSAGE = fault ->> 'message', ERRCODE = fault ->> 'sqlstate',
                                  DETAIL = fault ->> 'detail';
        ELSIF fault ->> 'detail' IS NULL THEN
            RAISE EXCEPTION USING MESSAGE = fault ->> 'message', ERRCODE = fault ->> 'sqlstate',
                                  HINT = fault ->> 'hint';
        END IF;
        RAISE EXCEPTION USING MESSAGE = fault ->> 'message', ERRCODE = fault ->> 'sqlstate',
                              DETAIL = fault ->> 'detail', HINT = fault ->> 'hint';
    END IF;
    FOR note IN SELECT jsonb_array_elements_text(answer -> 'notices') LOOP
        RAISE NOTICE '%', note;
    END LOOP;
    IF answer ->> 'queue' IS NOT NULL THEN
        PERFORM pgtrickle.queue_request(verb, arguments, path, answer ->> 'queue');
        RETURN NULL;
    END IF;
    RETURN answer -> 'result';
END
$$;

CREATE FUNCTION pgtrickle.create_stream_table(
    name text, query text, schedule text DEFAULT '1m', refresh_mode text DEFAULT 'AUTO',
    initialize boolean DEFAULT true, engine text DEFAULT 'auto', cdc_mode text DEFAULT NULL,
    publish boolean DEFAULT true) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('create_stream_table', jsonb_build_object(
        'name', name, 'query', query, 'schedule', schedule, 'refresh_mode', refresh_mode,
        'initialize', initialize, 'engine', engine, 'cdc_mode', cdc_mode, 'publish', publish),
        current_setting('search_path'));
END;

-- For scripts that give the lag as an interval; the argument has no default, so no call is ambiguous.
CREATE FUNCTION pgtrickle.create_stream_table(
    name text, query text, target_lag interval, refresh_mode text DEFAULT 'AUTO',
    initialize boolean DEFAULT true, engine text DEFAULT 'auto', cdc_mode text DEFAULT NULL,
    publish boolean DEFAULT true) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.create_stream_table(
        name, query, extract(epoch FROM target_lag)::bigint || 's', refresh_mode, initialize,
        engine, cdc_mode, publish);
END;

CREATE FUNCTION pgtrickle.create_or_replace_stream_table(
    name text, query text, schedule text DEFAULT '1m', refresh_mode text DEFAULT 'AUTO',
    initialize boolean DEFAULT true, engine text DEFAULT 'auto', cdc_mode text DEFAULT NULL,
    publish boolean DEFAULT true) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('create_or_replace_stream_table', jsonb_build_object(
        'name', name, 'query', query, 'schedule', schedule, 'refresh_mode', refresh_mode,
        'initialize', initialize, 'engine', engine, 'cdc_mode', cdc_mode, 'publish', publish),
        current_setting('search_path'));
END;

-- NULL leaves a thing as it is; the schedule 'calculated' is DOWNSTREAM.
CREATE FUNCTION pgtrickle.alter_stream_table(
    name text, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL, status text DEFAULT NULL,
    engine text DEFAULT NULL, cdc_mode text DEFAULT NULL, query text DEFAULT NULL) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('alter_stream_table', jsonb_strip_nulls(jsonb_build_object(
        'name', name, 'schedule', schedule, 'refresh_mode', refresh_mode, 'status', status,
        'engine', engine, 'cdc_mode', cdc_mode, 'query', query)), current_setting('search_path'));
END;

CREATE FUNCTION pgtrickle.suspend_stream_table(name text) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.alter_stream_table(name, status => 'SUSPENDED');
END;

CREATE FUNCTION pgtrickle.resume_stream_table(name text) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.alter_stream_table(name, status => 'ACTIVE');
END;

CREATE FUNCTION pgtrickle.drop_stream_table(name text, "cascade" boolean DEFAULT false) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('drop_stream_table',
        jsonb_build_object('name', name, 'cascade', "cascade"), current_setting('search_path'));
END;

CREATE FUNCTION pgtrickle.refresh_stream_table(name text) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('refresh_stream_table',
        jsonb_build_object('name', name), current_setting('search_path'));
END;

-- Nothing is returned where the question is queued: the answer is then the result of the request.
CREATE FUNCTION pgtrickle.explain_st(name text) RETURNS TABLE (property text, value text)
LANGUAGE sql
BEGIN ATOMIC
    SELECT fact ->> 0, fact ->> 1
      FROM jsonb_array_elements(pgtrickle.carry_out('explain_st',
               jsonb_build_object('name', name), current_setting('search_path'))) AS fact;
END;

CREATE FUNCTION pgtrickle.explain_query(query text) RETURNS TABLE (property text, value text)
LANGUAGE sql
BEGIN ATOMIC
    SELECT fact ->> 0, fact ->> 1
      FROM jsonb_array_elements(pgtrickle.carry_out('explain_query',
               jsonb_build_object('query', query), current_setting('search_path'))) AS fact;
END;

CREATE FUNCTION pgtrickle.verify_stream_table(name text)
RETURNS TABLE (stream_table text, equal boolean, missing bigint, extra bigint, "rows" bigint,
               epoch bigint)
LANGUAGE sql
BEGIN ATOMIC
    SELECT answer ->> 'name', (answer -> 'equal')::boolean, (answer -> 'missing')::bigint,
           (answer -> 'extra')::bigint, (answer -> 'rows')::bigint, (answer ->> 'epoch')::bigint
      FROM pgtrickle.carry_out('verify_stream_table', jsonb_build_object('name', name),
                               current_setting('search_path')) AS answer
     WHERE answer IS NOT NULL;
END;

-- A stream table that was dropped by hand, and that nobody else reads, leaves the catalog at once if
-- its writers maintained it. What is captured for others is looked after by the next verb.
CREATE FUNCTION pgtrickle.forget_dropped() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own record;
BEGIN
    IF current_setting('pg_trickle.installing', true) = 'on' OR NOT pgtrickle.is_at_home() THEN
        RETURN;
    END IF;
    FOR own IN
        SELECT st.pgt_id, st.pgt_relid FROM pgtrickle.pgt_stream_tables st
         WHERE st.effective_mode IN ('IMMEDIATE', 'COMMIT')
           AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = st.pgt_relid)
           AND NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
                            WHERE d.source_relid = st.pgt_relid)
         ORDER BY st.pgt_id
    LOOP
        PERFORM set_config('pg_trickle.installing', 'on', true);  -- what follows drops tables too
        PERFORM pgtrickle.remove_following(own.pgt_id);
        PERFORM pgtrickle.drop_states(own.pgt_id);
        UPDATE pgtrickle.pgt_refresh_groups SET members = array_remove(members, own.pgt_id)
         WHERE own.pgt_id = ANY (members);
        DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_id = own.pgt_id;
        PERFORM set_config('pg_trickle.installing', 'off', true);
    END LOOP;
END
$$;

DO $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        CREATE EVENT TRIGGER pgt_forget_drop ON sql_drop EXECUTE FUNCTION pgtrickle.forget_dropped();
    END IF;
END
$$;
