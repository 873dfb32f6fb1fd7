"""What the database itself refuses about allocations and events.

Room of a node is checked at the end of each statement: the touched nodes' rows are locked in id order, then what is
live there is summed with a new snapshot. Above READ COMMITTED there is no new snapshot, so there the rows are updated
instead, and of two transactions that touch one node the second fails.
"""

from django.db import migrations

ROOM = """
CREATE FUNCTION tidegate_check_room(node_ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    bad record;
BEGIN
    SELECT n.name, d.device, sum(a.gpu_milli) AS milli, sum(a.gpu_memory_mib) AS memory, n.gpus,
           n.gpu_memory_mib AS device_memory INTO bad
    FROM quotas_node n
    JOIN workloads_allocation a ON a.node_id = n.id AND a.ended_at IS NULL
    CROSS JOIN LATERAL unnest(a.devices) AS d(device)
    WHERE n.id = ANY(node_ids)
    GROUP BY n.id, d.device
    HAVING sum(a.gpu_milli) > 1000 OR d.device >= n.gpus
        OR (n.gpu_memory_mib > 0 AND sum(a.gpu_memory_mib) > n.gpu_memory_mib)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'GPU % of node % would be given out % of 1000 thousandths, % of % MiB; the node has % GPUs',
            bad.device, bad.name, bad.milli, bad.memory, bad.device_memory, bad.gpus
            USING ERRCODE = 'check_violation', CONSTRAINT = 'allocation_device_room', TABLE = 'workloads_allocation';
    END IF;
    SELECT n.name, sum(a.cpu_milli) AS cpu, sum(a.memory_mib) AS memory, n.cpu_milli, n.memory_mib INTO bad
    FROM quotas_node n
    JOIN workloads_allocation a ON a.node_id = n.id AND a.ended_at IS NULL
    WHERE n.id = ANY(node_ids)
    GROUP BY n.id
    HAVING sum(a.cpu_milli) > n.cpu_milli OR sum(a.memory_mib) > n.memory_mib
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'node % would give out CPU % of %, memory % of %',
            bad.name, bad.cpu, bad.cpu_milli, bad.memory, bad.memory_mib
            USING ERRCODE = 'check_violation', CONSTRAINT = 'allocation_node_room', TABLE = 'workloads_allocation';
    END IF;
END $$;

CREATE FUNCTION tidegate_guard_room(node_ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM 1 FROM quotas_node WHERE id = ANY(node_ids) ORDER BY id FOR NO KEY UPDATE;
    ELSE
        UPDATE quotas_node SET revision = revision WHERE id = ANY(node_ids);
    END IF;
    PERFORM tidegate_check_room(node_ids);
END $$;

CREATE FUNCTION tidegate_allocations_added() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    node_ids bigint[];
BEGIN
    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE cardinality(devices) > 1
          AND cardinality(devices) <> (SELECT count(DISTINCT d) FROM unnest(devices) AS d)
    ) THEN
        RAISE EXCEPTION 'an allocation names a GPU twice'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'allocation_device_once', TABLE = 'workloads_allocation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(DISTINCT node_id) INTO node_ids FROM fresh WHERE ended_at IS NULL;
    ELSE
        SELECT array_agg(DISTINCT f.node_id) INTO node_ids
        FROM fresh f JOIN stale s ON s.id = f.id
        WHERE f.ended_at IS NULL
          AND (s.ended_at IS NOT NULL OR f.node_id <> s.node_id OR f.devices <> s.devices
               OR f.gpu_milli > s.gpu_milli OR f.gpu_memory_mib > s.gpu_memory_mib
               OR f.cpu_milli > s.cpu_milli OR f.memory_mib > s.memory_mib);
    END IF;
    IF node_ids IS NOT NULL THEN
        PERFORM tidegate_guard_room(node_ids);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER allocation_room_added AFTER INSERT ON workloads_allocation
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tidegate_allocations_added();
CREATE TRIGGER allocation_room_changed AFTER UPDATE ON workloads_allocation
    REFERENCING NEW TABLE AS fresh OLD TABLE AS stale FOR EACH STATEMENT
    EXECUTE FUNCTION tidegate_allocations_added();

CREATE FUNCTION tidegate_node_shrunk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate_check_room(ARRAY[NEW.id]);
    RETURN NULL;
END $$;

CREATE TRIGGER node_room_kept AFTER UPDATE ON quotas_node FOR EACH ROW
    WHEN (NEW.gpus < OLD.gpus OR NEW.gpu_memory_mib <> OLD.gpu_memory_mib
          OR coalesce(NEW.cpu_milli < OLD.cpu_milli, NEW.cpu_milli IS NOT NULL)
          OR coalesce(NEW.memory_mib < OLD.memory_mib, NEW.memory_mib IS NOT NULL))
    EXECUTE FUNCTION tidegate_node_shrunk();
"""
NO_ROOM = """
DROP TRIGGER node_room_kept ON quotas_node;
DROP FUNCTION tidegate_node_shrunk();
DROP TRIGGER allocation_room_changed ON workloads_allocation;
DROP TRIGGER allocation_room_added ON workloads_allocation;
DROP FUNCTION tidegate_allocations_added();
DROP FUNCTION tidegate_guard_room(bigint[]);
DROP FUNCTION tidegate_check_room(bigint[]);
"""

EVENTS = """
CREATE TRIGGER event_never_changed BEFORE UPDATE ON workloads_event
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate_append_only();
"""
NO_EVENTS = "DROP TRIGGER event_never_changed ON workloads_event;"


class Migration(migrations.Migration):
    dependencies = [("workloads", "0001_initial"), ("quotas", "0002_guards")]

    operations = [migrations.RunSQL(ROOM, NO_ROOM), migrations.RunSQL(EVENTS, NO_EVENTS)]
