"""What the database itself refuses about quotas and the audit: the last line of defence behind the services.

A change of amounts takes the pool's row, a change of the tree's shape the cluster's row. What is summed after that
lock is read with a new snapshot, so two changes at once cannot both pass a check that only one of them may pass.
"""

from django.db import migrations

# --- sums of what is promised -------------------------------------------------------------------------------------

PROMISED = """
CREATE FUNCTION tidegate_resource(amount quotas_quotaamount, resource integer) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (ARRAY[amount.guaranteed_gpu_milli, amount.guaranteed_cpu_milli, amount.guaranteed_memory_mib])[resource]
$$;

-- What is promised below a quota (NULL: to the roots of the cluster). A quota that does not govern the resource
-- stands for what its own children are promised.
CREATE FUNCTION tidegate_promised_below(above bigint, of_cluster bigint, in_pool bigint, resource integer)
RETURNS numeric LANGUAGE sql STABLE AS $$
    WITH RECURSIVE below AS (
        SELECT q.id, tidegate_resource(a, resource) AS promised
        FROM quotas_quota q LEFT JOIN quotas_quotaamount a ON a.quota_id = q.id AND a.pool_id = in_pool
        WHERE q.cluster_id = of_cluster
          AND CASE WHEN above IS NULL THEN q.parent_id IS NULL ELSE q.parent_id = above END
        UNION ALL
        SELECT q.id, tidegate_resource(a, resource)
        FROM below b
        JOIN quotas_quota q ON q.parent_id = b.id
        LEFT JOIN quotas_quotaamount a ON a.quota_id = q.id AND a.pool_id = in_pool
        WHERE b.promised IS NULL
    )
    SELECT coalesce(sum(promised), 0) FROM below
$$;

-- What the pool's nodes have, in whatever state they are; NULL: no bound.
CREATE FUNCTION tidegate_pool_capacity(of_pool bigint, resource integer) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT CASE resource
        WHEN 1 THEN coalesce(sum(gpus), 0) * 1000
        WHEN 2 THEN CASE WHEN bool_or(cpu_milli IS NULL) THEN NULL ELSE coalesce(sum(cpu_milli), 0) END
        ELSE CASE WHEN bool_or(memory_mib IS NULL) THEN NULL ELSE coalesce(sum(memory_mib), 0) END
    END FROM quotas_node WHERE pool_id = of_pool
$$;

CREATE FUNCTION tidegate_check_roots(of_cluster bigint, of_pool bigint, resource integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    promised numeric := tidegate_promised_below(NULL, of_cluster, of_pool, resource);
    capacity numeric := tidegate_pool_capacity(of_pool, resource);
BEGIN
    IF promised > capacity AND NOT (SELECT oversubscription FROM quotas_nodepool WHERE id = of_pool) THEN
        RAISE EXCEPTION 'root quotas are promised % of resource % in pool %, which has %',
            promised, resource, of_pool, capacity
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_within_pool', TABLE = 'quotas_quotaamount';
    END IF;
END $$;

-- Checks one quota's own promise of a resource against its children's, and its parent's (or the pool's) against its
-- siblings'.
CREATE FUNCTION tidegate_check_promise(of_quota bigint, in_pool bigint, resource integer, grows boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    here record;
    promised numeric;
    next_quota bigint := of_quota;
BEGIN
    FOR steps IN 1..7 LOOP
        SELECT q.id, q.parent_id, q.cluster_id, tidegate_resource(a, resource) AS has INTO here
        FROM quotas_quota q LEFT JOIN quotas_quotaamount a ON a.quota_id = q.id AND a.pool_id = in_pool
        WHERE q.id = next_quota;
        EXIT WHEN here.id IS NULL;
        IF here.has IS NOT NULL THEN
            promised := tidegate_promised_below(here.id, here.cluster_id, in_pool, resource);
            IF promised > here.has THEN
                RAISE EXCEPTION 'children of quota % are promised % of resource %, it has %',
                    here.id, promised, resource, here.has
                    USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_within_parent',
                          TABLE = 'quotas_quotaamount';
            END IF;
            EXIT WHEN here.id <> of_quota;
        END IF;
        IF here.parent_id IS NULL THEN
            IF grows THEN
                PERFORM tidegate_check_roots(here.cluster_id, in_pool, resource);
            END IF;
            EXIT;
        END IF;
        next_quota := here.parent_id;
    END LOOP;
END $$;

CREATE FUNCTION tidegate_amount_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    row_now quotas_quotaamount := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    had bigint;
    has bigint;
BEGIN
    PERFORM 1 FROM quotas_nodepool WHERE id = row_now.pool_id FOR NO KEY UPDATE;
    IF TG_OP <> 'DELETE' AND NOT EXISTS (
        SELECT 1 FROM quotas_quota q JOIN quotas_nodepool p ON p.cluster_id = q.cluster_id
        WHERE q.id = row_now.quota_id AND p.id = row_now.pool_id
    ) THEN
        RAISE EXCEPTION 'quota % and pool % are of different clusters', row_now.quota_id, row_now.pool_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'amount_same_cluster', TABLE = 'quotas_quotaamount';
    END IF;
    FOR resource IN 1..3 LOOP
        had := CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE tidegate_resource(OLD, resource) END;
        has := CASE WHEN TG_OP = 'DELETE' THEN NULL ELSE tidegate_resource(NEW, resource) END;
        IF had IS DISTINCT FROM has THEN
            PERFORM tidegate_check_promise(
                row_now.quota_id, row_now.pool_id, resource, coalesce(has > had, true)
            );
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER amount_within_tree AFTER INSERT OR UPDATE OR DELETE ON quotas_quotaamount
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tidegate_amount_changed();

CREATE FUNCTION tidegate_pool_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    FOR resource IN 1..3 LOOP
        PERFORM tidegate_check_roots(NEW.cluster_id, NEW.id, resource);
    END LOOP;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER pool_not_oversubscribed AFTER UPDATE OF oversubscription ON quotas_nodepool
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.oversubscription AND NOT NEW.oversubscription)
    EXECUTE FUNCTION tidegate_pool_changed();
"""
NO_PROMISED = """
DROP TRIGGER pool_not_oversubscribed ON quotas_nodepool;
DROP TRIGGER amount_within_tree ON quotas_quotaamount;
DROP FUNCTION tidegate_pool_changed();
DROP FUNCTION tidegate_amount_changed();
DROP FUNCTION tidegate_check_promise(bigint, bigint, integer, boolean);
DROP FUNCTION tidegate_check_roots(bigint, bigint, integer);
DROP FUNCTION tidegate_pool_capacity(bigint, integer);
DROP FUNCTION tidegate_promised_below(bigint, bigint, bigint, integer);
DROP FUNCTION tidegate_resource(quotas_quotaamount, integer);
"""

# --- the shape of the tree ----------------------------------------------------------------------------------------

SHAPE = """
CREATE FUNCTION tidegate_quota_placed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    depth integer;
    height integer;
    loops boolean;
BEGIN
    PERFORM 1 FROM quotas_cluster WHERE id = NEW.cluster_id FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT 1 FROM quotas_quota q JOIN quotas_quota p ON p.id = q.parent_id
        WHERE q.id = NEW.id AND p.cluster_id <> q.cluster_id
    ) THEN
        RAISE EXCEPTION 'quota % and its parent are of different clusters', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_same_cluster', TABLE = 'quotas_quota';
    END IF;
    WITH RECURSIVE up AS (
        SELECT id, parent_id, 1 AS level FROM quotas_quota WHERE id = NEW.id
        UNION ALL
        SELECT q.id, q.parent_id, up.level + 1 FROM up JOIN quotas_quota q ON q.id = up.parent_id WHERE up.level < 8
    )
    SELECT max(level), count(*) > count(DISTINCT id) INTO depth, loops FROM up;
    IF loops THEN
        RAISE EXCEPTION 'quota % would be above itself', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_no_loop', TABLE = 'quotas_quota';
    END IF;
    WITH RECURSIVE down AS (
        SELECT id, 0 AS level FROM quotas_quota WHERE id = NEW.id
        UNION ALL
        SELECT q.id, down.level + 1 FROM down JOIN quotas_quota q ON q.parent_id = down.id WHERE down.level < 8
    )
    SELECT max(level) INTO height FROM down;
    IF depth + height > 6 THEN
        RAISE EXCEPTION 'quota % would make a tree % deep; 6 is the most', NEW.id, depth + height
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_depth', TABLE = 'quotas_quota';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        PERFORM 1 FROM quotas_nodepool WHERE cluster_id = NEW.cluster_id ORDER BY id FOR NO KEY UPDATE;
        PERFORM tidegate_check_promise(NEW.id, p.id, resource, true)
        FROM quotas_nodepool p CROSS JOIN generate_series(1, 3) AS resource WHERE p.cluster_id = NEW.cluster_id;
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER quota_placed AFTER INSERT OR UPDATE OF parent_id, cluster_id ON quotas_quota
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tidegate_quota_placed();

CREATE FUNCTION tidegate_node_placed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM quotas_nodepool WHERE id = NEW.pool_id AND cluster_id <> NEW.cluster_id) THEN
        RAISE EXCEPTION 'node % and its pool are of different clusters', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'node_same_cluster', TABLE = 'quotas_node';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER node_placed AFTER INSERT OR UPDATE OF pool_id, cluster_id ON quotas_node
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tidegate_node_placed();
"""
NO_SHAPE = """
DROP TRIGGER node_placed ON quotas_node;
DROP FUNCTION tidegate_node_placed();
DROP TRIGGER quota_placed ON quotas_quota;
DROP FUNCTION tidegate_quota_placed();
"""

# --- records that are never changed -------------------------------------------------------------------------------

APPEND_ONLY = """
CREATE FUNCTION tidegate_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
END $$;

CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON quotas_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate_append_only();
"""
NO_APPEND_ONLY = """
DROP TRIGGER audit_append_only ON quotas_auditevent;
DROP FUNCTION tidegate_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("quotas", "0001_initial")]

    operations = [
        migrations.RunSQL(PROMISED, NO_PROMISED),
        migrations.RunSQL(SHAPE, NO_SHAPE),
        migrations.RunSQL(APPEND_ONLY, NO_APPEND_ONLY),
    ]
