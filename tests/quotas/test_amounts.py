"""The sum rule: what is promised below never exceeds what is promised, checked as a whole and by the database too."""

from __future__ import annotations

import itertools
import random
import threading
import time

import pytest
from django.db import IntegrityError, transaction

from quotas.actors import SYSTEM
from quotas.errors import Refused, Stale
from quotas.models import NodePool, Quota, QuotaAmount
from quotas.promises import Tree
from quotas.selectors import uncommitted_of
from quotas.services import create_quota, edit_pool, move_quota, set_amounts, state_of
from quotas.specs import AmountSpec, PoolSpec, QuotaSpec
from quotas.words import sentence
from scheduler.services import rebalance, scale_quota
from tests.makers import Installation, a_quota, at_once, check_deferred, denied, install, not_found, refused


def gpus(amount: float) -> AmountSpec:
    return AmountSpec(guaranteed_gpu_milli=int(amount * 1000))


def test_scale_sets_amounts_and_writes_history_and_audit(here: Installation) -> None:
    scale_quota(actor=here["platform"], quota=here.quota, amounts={here.pool: gpus(40)})
    here.quota.refresh_from_db()
    assert here.quota.amounts.get().guaranteed_gpu_milli == 40_000
    assert here.quota.revision == 2
    version = here.quota.versions.first()
    assert version is not None
    assert (version.verb, version.revision, version.by) == ("scaled", 2, here["platform"])
    assert version.before["amounts"][str(here.pool.pk)]["guaranteed_gpu_milli"] == 48_000
    assert version.after["amounts"][str(here.pool.pk)]["guaranteed_gpu_milli"] == 40_000


def test_scale_beyond_the_parent_says_what_is_missing(here: Installation) -> None:
    with refused("quota.exceeds_parent", field="amounts.h100.guaranteed_gpu_milli"):
        scale_quota(actor=here["platform"], quota=here.quota, amounts={here.pool: gpus(56)})
    with pytest.raises(Refused) as caught:
        scale_quota(actor=here["platform"], quota=here.quota, amounts={here.pool: gpus(56)})
    (problem,) = caught.value.problems
    assert (problem.facts["asked"], problem.facts["available"], problem.facts["missing"]) == (56_000, 48_000, 8_000)
    assert "8 GPUs are missing" in sentence(problem.code, problem.facts)


def test_rebalance_is_checked_as_a_whole(here: Installation) -> None:
    rebalance(
        actor=here["platform"], changes={here.quota: {here.pool: gpus(56)}, here.other_quota: {here.pool: gpus(72)}}
    )
    found = {row.quota_id: row.guaranteed_gpu_milli for row in QuotaAmount.objects.all()}
    assert (found[here.quota.pk], found[here.other_quota.pk]) == (56_000, 72_000)


def test_two_scales_work_in_the_right_order_only(here: Installation) -> None:
    with refused("quota.exceeds_parent"):
        scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(56)})
    scale_quota(actor=SYSTEM, quota=here.other_quota, amounts={here.pool: gpus(72)})
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(56)})
    assert here.quota.amounts.get().guaranteed_gpu_milli == 56_000


def test_a_parent_keeps_what_its_children_are_promised(here: Installation) -> None:
    with refused("quota.below_children"):
        scale_quota(actor=SYSTEM, quota=here.root, amounts={here.pool: gpus(127)})


def test_roots_stay_within_the_pool_unless_it_allows_oversubscription(here: Installation) -> None:
    with refused("quota.exceeds_pool"):
        a_quota(here.cluster, "second", gpus=1)
    edit_pool(actor=SYSTEM, pool=here.pool, spec=PoolSpec("h100", oversubscription=True))
    a_quota(here.cluster, "second", gpus=1)
    with refused("quota.exceeds_pool", field="oversubscription"):
        edit_pool(actor=SYSTEM, pool=here.pool, spec=PoolSpec("h100"))


def test_a_limit_below_the_guarantee_is_refused(here: Installation) -> None:
    with refused("quota.limit_below_guaranteed"):
        scale_quota(
            actor=SYSTEM,
            quota=here.quota,
            amounts={here.pool: AmountSpec(guaranteed_gpu_milli=8_000, limit_gpu_milli=7_999)},
        )


def test_each_resource_is_summed_for_itself(here: Installation) -> None:
    scale_quota(
        actor=SYSTEM,
        quota=here.root,
        amounts={here.pool: AmountSpec(guaranteed_gpu_milli=128_000, guaranteed_cpu_milli=100_000)},
    )
    with refused("quota.exceeds_parent", field="amounts.h100.guaranteed_cpu_milli"):
        scale_quota(
            actor=SYSTEM,
            quota=here.quota,
            amounts={here.pool: AmountSpec(guaranteed_gpu_milli=48_000, guaranteed_cpu_milli=100_001)},
        )


def test_a_quota_that_does_not_govern_a_resource_passes_its_childrens_promises_up(here: Installation) -> None:
    between = a_quota(here.cluster, "between", parent=here.root)
    with refused("quota.exceeds_parent"):
        a_quota(here.cluster, "below", gpus=1, parent=between)
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(47)})
    a_quota(here.cluster, "below", gpus=1, parent=between)
    assert uncommitted_of(here.cluster)[here.root.pk, here.pool.pk]["gpu_milli"] == 0


def test_what_is_not_promised_yet_is_known_for_pool_and_quota(here: Installation) -> None:
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(40)})
    rest = uncommitted_of(here.cluster)
    assert rest[here.root.pk, here.pool.pk]["gpu_milli"] == 8_000
    assert rest[None, here.pool.pk]["gpu_milli"] == 0
    assert rest[here.quota.pk, here.pool.pk]["cpu_milli"] is None


def test_the_tree_is_at_most_six_deep(here: Installation) -> None:
    parent = here.quota
    for level in range(4):
        parent = a_quota(here.cluster, f"level-{level}", parent=parent)
    with refused("quota.too_deep", field="parent"):
        a_quota(here.cluster, "too-deep", parent=parent)


def test_a_quota_never_comes_to_stand_below_itself(here: Installation) -> None:
    with refused("quota.loop", field="parent"):
        move_quota(actor=SYSTEM, quota=here.root, parent=here.quota)


def test_a_move_needs_room_under_the_new_parent(here: Installation) -> None:
    small = a_quota(here.cluster, "small", gpus=0, parent=here.root)
    with refused("quota.exceeds_parent"):
        move_quota(actor=SYSTEM, quota=here.quota, parent=small)
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(0)})
    moved = move_quota(actor=here["platform"], quota=here.quota, parent=small)
    assert moved.parent == small


def test_an_old_revision_is_stale(here: Installation) -> None:
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(40)}, revision=1)
    with pytest.raises(Stale):
        scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(41)}, revision=1)
    assert here.quota.amounts.get().guaranteed_gpu_milli == 40_000


def test_only_the_platform_changes_amounts(here: Installation) -> None:
    for name in ("owner", "administrator", "viewer"):
        with denied("quota.scale"):
            scale_quota(actor=here[name], quota=here.quota, amounts={here.pool: gpus(1)})
    for name in ("stranger", "rival"):
        with not_found():
            scale_quota(actor=here[name], quota=here.quota, amounts={here.pool: gpus(1)})
    with denied("quota.scale"):
        scale_quota(actor=here["auditor"], quota=here.quota, amounts={here.pool: gpus(1)})


def test_names_of_a_cluster_are_unique_whatever_their_case(here: Installation) -> None:
    with refused("conflict", field="name"):
        create_quota(actor=SYSTEM, cluster=here.cluster, spec=QuotaSpec("QUOTA-1.1"))


# --- the database's own word --------------------------------------------------------------------------------------


def written(quota: Quota, milli: int) -> None:
    """The amount behind the services' back, and the checks that the commit would make."""
    with transaction.atomic():
        QuotaAmount.objects.filter(quota=quota).update(guaranteed_gpu_milli=milli)
        check_deferred()


def test_the_database_refuses_children_beyond_their_parent(here: Installation) -> None:
    with pytest.raises(IntegrityError, match="children of quota"):
        written(here.quota, 48_001)


def test_the_database_refuses_a_parent_below_its_children(here: Installation) -> None:
    with pytest.raises(IntegrityError, match="children of quota"):
        written(here.root, 127_999)


def test_the_database_refuses_roots_beyond_the_pool(here: Installation) -> None:
    with pytest.raises(IntegrityError, match="root quotas are promised"):
        written(here.root, 128_001)


def test_the_database_refuses_a_quota_below_itself(here: Installation) -> None:
    def move_below_itself() -> None:
        with transaction.atomic():
            Quota.objects.filter(pk=here.root.pk).update(parent=here.quota)
            check_deferred()

    with pytest.raises(IntegrityError, match="above itself"):
        move_below_itself()


def test_the_database_refuses_negative_amounts(here: Installation) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        QuotaAmount.objects.filter(quota=here.quota).update(limit_gpu_milli=-1)


@pytest.mark.django_db(transaction=True)
def test_two_raises_at_once_never_pass_together() -> None:
    here = install()
    scale_quota(actor=SYSTEM, quota=here.quota, amounts={here.pool: gpus(40)})
    scale_quota(actor=SYSTEM, quota=here.other_quota, amounts={here.pool: gpus(80)})
    meet = threading.Barrier(2)

    def raise_to(quota: Quota, amount: float) -> object:
        meet.wait(timeout=10)
        return scale_quota(actor=SYSTEM, quota=quota, amounts={here.pool: gpus(amount)})

    results = at_once(lambda: raise_to(here.quota, 48), lambda: raise_to(here.other_quota, 88))
    assert sorted(type(result).__name__ for result in results) == ["Quota", "Refused"]
    total = sum(row.guaranteed_gpu_milli or 0 for row in QuotaAmount.objects.exclude(quota=here.root))
    assert total == 128_000


@pytest.mark.django_db(transaction=True)
def test_the_database_alone_keeps_the_sum_when_two_write_at_once() -> None:
    here = install()
    QuotaAmount.objects.filter(quota=here.quota).update(guaranteed_gpu_milli=40_000)
    meet = threading.Barrier(2)

    def write(quota: Quota, milli: int) -> None:
        with transaction.atomic():
            QuotaAmount.objects.filter(quota=quota).update(guaranteed_gpu_milli=milli)
            meet.wait(timeout=10)

    results = at_once(lambda: write(here.quota, 48_000), lambda: write(here.other_quota, 88_000))
    assert sum(isinstance(result, IntegrityError) for result in results) == 1


@pytest.mark.django_db(transaction=True)
def test_many_hands_on_one_tree_lose_no_update_and_keep_the_sum() -> None:
    here = install()
    root, pool = here.root, NodePool.objects.get()

    def shuffle(step: int) -> str:
        mine, other = (here.quota, here.other_quota) if step % 2 else (here.other_quota, here.quota)
        sizes = {mine: {pool: gpus(step)}, other: {pool: gpus(128 - step)}}
        try:
            set_amounts(actor=SYSTEM, changes=sizes, verb="rebalanced")
        except Stale:
            return "stale"
        return "done"

    results = at_once(*(lambda step=step: shuffle(step) for step in range(1, 9)))
    assert set(results) <= {"done", "stale"}
    tree = Tree.load(root.cluster)
    assert tree.promised_below(root.pk, pool.pk, "gpu_milli") == 128_000
    revisions = list(here.quota.versions.order_by("revision").values_list("revision", flat=True))
    assert revisions == list(range(1, results.count("done") + 2))
    pairs = itertools.pairwise(here.quota.versions.order_by("revision"))
    assert all(later.before == earlier.after for earlier, later in pairs)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_twenty_hands_for_a_minute_keep_the_sum_at_every_read() -> None:
    here = install()
    until = time.monotonic() + 60
    broken: list[tuple[int | None, ...]] = []

    def change(seed: int) -> dict[str, int]:
        dice, counts = random.Random(seed), dict.fromkeys(("done", "Refused", "Stale"), 0)
        while time.monotonic() < until:
            try:
                _one_change(here, dice)
                counts["done"] += 1
            except (Refused, Stale) as error:
                counts[type(error).__name__] += 1
        return counts

    def read() -> None:
        while time.monotonic() < until:
            with transaction.atomic():
                rows = dict(QuotaAmount.objects.values_list("quota_id", "guaranteed_gpu_milli"))
            if (rows[here.quota.pk] or 0) + (rows[here.other_quota.pk] or 0) > (rows[here.root.pk] or 0):
                broken.append(tuple(rows.values()))

    results = at_once(read, *(lambda seed=seed: change(seed) for seed in range(20)))
    counts = [result for result in results if isinstance(result, dict)]
    assert (len(counts), broken) == (20, [])
    for quota in (here.quota, here.other_quota):
        versions = list(quota.versions.order_by("revision"))
        assert [version.revision for version in versions] == list(range(1, len(versions) + 1))
        assert all(later.before == earlier.after for earlier, later in itertools.pairwise(versions))
        assert versions[-1].after == state_of(Quota.objects.get(pk=quota.pk))


def _one_change(here: Installation, dice: random.Random) -> None:
    """A scale with the revision that was read, or a rebalance of both."""
    quota = Quota.objects.get(pk=dice.choice((here.quota.pk, here.other_quota.pk)))
    other = here.other_quota if quota.pk == here.quota.pk else here.quota
    size = dice.randint(0, 128)
    if dice.random() < 0.5:
        scale_quota(actor=SYSTEM, quota=quota, amounts={here.pool: gpus(size)}, revision=quota.revision)
    else:
        rebalance(actor=SYSTEM, changes={quota: {here.pool: gpus(size)}, other: {here.pool: gpus(128 - size)}})
