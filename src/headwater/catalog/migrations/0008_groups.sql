-- Refresh groups: stream tables that move together, in one transaction to one epoch, whichever of
-- them is refreshed.

-- All that a refresh of a table moves, its own id first: what it reads, whoever shares a group with any
-- of those, what they read, and so on.
CREATE FUNCTION pgtrickle.moved_with(own_id bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pgtrickle.pgt_dependencies d
      WHERE d.pgt_id = own_id AND d.source_type = 'STREAM_TABLE';
    IF NOT FOUND THEN
        PERFORM FROM pgtrickle.pgt_refresh_groups g WHERE own_id = ANY (g.members);
        IF NOT FOUND THEN
            RETURN ARRAY[own_id];
        END IF;
    END IF;
    RETURN (
        WITH RECURSIVE moved AS (
            SELECT own_id AS pgt_id
            UNION
            SELECT other.pgt_id FROM moved m CROSS JOIN LATERAL (
                   SELECT st.pgt_id FROM pgtrickle.pgt_dependencies d
                     JOIN pgtrickle.pgt_stream_tables st ON st.pgt_relid = d.source_relid
                    WHERE d.pgt_id = m.pgt_id
                   UNION ALL
                   SELECT unnest(g.members) FROM pgtrickle.pgt_refresh_groups g
                    WHERE m.pgt_id = ANY (g.members)) AS other
        )
        SELECT array_agg(m.pgt_id ORDER BY m.pgt_id <> own_id, m.pgt_id) FROM moved m);
END
$$;

-- Refused with a code are names that are taken, fewer than two members, what is no stream table, IMMEDIATE
-- tables, and members of other groups.
CREATE FUNCTION pgtrickle.create_refresh_group(group_name text, members text[]) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('create_refresh_group',
        jsonb_build_object('group_name', group_name, 'members', members),
        current_setting('search_path'));
END;

CREATE FUNCTION pgtrickle.drop_refresh_group(group_name text) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    SELECT pgtrickle.carry_out('drop_refresh_group',
        jsonb_build_object('group_name', group_name), current_setting('search_path'));
END;

-- The epoch and its data timestamp are those of all members; NULL until they have moved together.
CREATE FUNCTION pgtrickle.refresh_groups()
RETURNS TABLE (group_id bigint, group_name text, members text[], epoch bigint,
               data_timestamp timestamptz, created_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT g.group_id, g.group_name, coalesce(own.names, '{}'),
           CASE WHEN own.is_one THEN own.epoch END, CASE WHEN own.is_one THEN own.data_timestamp END,
           g.created_at
      FROM pgtrickle.pgt_refresh_groups g
     CROSS JOIN LATERAL (
           SELECT array_agg(format('%I.%I', st.pgt_schema, st.pgt_name)
                            ORDER BY array_position(g.members, st.pgt_id)) AS names,
                  count(DISTINCT st.epoch) = 1 AND count(st.epoch) = count(*) AS is_one,
                  max(st.epoch) AS epoch, max(st.data_timestamp) AS data_timestamp
             FROM pgtrickle.pgt_stream_tables st WHERE st.pgt_id = ANY (g.members)) own
     ORDER BY g.group_name;
END;
