-- What every write to a stream table passes: no setting of its own, since each costs time at every
-- call, and so every name in full.
CREATE OR REPLACE FUNCTION pgtrickle.guard_stream_table() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF (pg_catalog.current_setting('pg_trickle.refreshing', true) OPERATOR(pg_catalog.=) 'on') IS NOT TRUE THEN
        RAISE EXCEPTION '%.% is a stream table: it follows its query and takes no % from outside',
                pg_catalog.quote_ident(TG_TABLE_SCHEMA), pg_catalog.quote_ident(TG_TABLE_NAME), TG_OP
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Write to its sources instead.';
    END IF;
    RETURN NULL;
END
$$;

-- An active IMMEDIATE table stands at every moment: its data are as new as the question.
--
-- How often, how long, and by how many rows writers moved an IMMEDIATE table: PostgreSQL's own
-- statistics, since a counter of ours would be a row that all writers wait for. The server counts
-- statements and time only under track_functions = 'pl' (or 'all'), and rows always, with those that
-- a re-sync wrote; all of it since its statistics were last reset.
CREATE OR REPLACE VIEW pgtrickle.pgt_status AS
SELECT format('%I.%I', st.pgt_schema, st.pgt_name) AS name,
       st.status,
       st.refresh_mode,
       st.target_lag,
       st.current_lag,
       st.last_refresh_at AS last_refresh,
       st.consecutive_errors AS errors,
       CASE WHEN st.refresh_mode IN ('IMMEDIATE', 'COMMIT') AND st.status = 'ACTIVE' AND st.is_populated THEN now()
            ELSE st.data_timestamp END AS data_timestamp,
       coalesce(st.effective_engine, st.engine) AS engine,
       st.effective_mode,
       st.reason,
       followed.statements AS followed_statements,
       CASE WHEN st.effective_mode IN ('IMMEDIATE', 'COMMIT') THEN
            pg_stat_get_tuples_inserted(st.pgt_relid) + pg_stat_get_tuples_updated(st.pgt_relid)
            + pg_stat_get_tuples_deleted(st.pgt_relid) END AS followed_rows,
       followed.ms AS followed_ms
  FROM pgtrickle.stream_tables_info st
  LEFT JOIN LATERAL (
       SELECT sum(pg_stat_get_function_calls(f.id))::bigint AS statements,
              sum(pg_stat_get_function_total_time(f.id)) AS ms
         FROM pgtrickle.pgt_dependencies d
        CROSS JOIN unnest(ARRAY['insert', 'update', 'delete', 'truncated']) AS event
        CROSS JOIN LATERAL (
              SELECT to_regproc(format('pgtrickle_state.follow_%s_%s_%s', d.pgt_id, d.source_relid, event))::oid
              ) AS f (id)
        WHERE d.pgt_id = st.pgt_id) followed ON st.effective_mode IN ('IMMEDIATE', 'COMMIT')
 ORDER BY st.pgt_schema, st.pgt_name;

CREATE OR REPLACE FUNCTION pgtrickle.pgt_status() RETURNS SETOF pgtrickle.pgt_status
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT s.* FROM pgtrickle.pgt_status s;
END;
