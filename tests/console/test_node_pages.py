"""Nodes and pools through the pages."""

from __future__ import annotations

import pytest

from quotas.models import Node, NodePool, NodeState, QuotaAmount
from tests.console.conftest import ClientFor
from tests.console.world import GPU, World


@pytest.mark.parametrize(
    ("action", "state"), [("cordon", NodeState.CORDONED), ("drain", NodeState.DRAINING), ("uncordon", NodeState.READY)]
)
def test_a_node_is_taken_out_and_brought_back(world: World, client_for: ClientFor, action: str, state: str):
    node = world.nodes[3 if action == "uncordon" else 0]
    answer = client_for("platform").post(f"/nodes/{node.pk}/{action}", {"reason": "new fans"})
    node.refresh_from_db()
    assert (answer.status_code, node.state, node.state_reason) == (302, state, "new fans")


def test_a_drain_says_first_what_leaves_and_what_stays(world: World, client_for: ClientFor):
    body = client_for("platform").get(f"/nodes/{world.nodes[0].pk}/drain").content.decode()
    assert "Not preemptible, stays until it ends: chat." in body
    body = client_for("platform").get(f"/nodes/{world.nodes[1].pk}/drain").content.decode()
    assert "what may be moved leaves: train-b." in body


def test_a_gpu_that_is_marked_is_crossed_out(world: World, client_for: ClientFor):
    client, node = client_for("platform"), world.nodes[1]
    client.post(f"/nodes/{node.pk}/gpus/5", {"to": "bad"})
    node.refresh_from_db()
    assert node.bad_devices == [5]
    assert "n01: 8 of 8 GPUs in use, 1 bad, ready" in client.get("/").content.decode()
    client.post(f"/nodes/{node.pk}/gpus/5", {"to": "healthy"})
    node.refresh_from_db()
    assert node.bad_devices == []


def test_a_node_is_added_labelled_and_removed(world: World, client_for: ClientFor):
    client = client_for("platform")
    sent = {
        "name": "n99",
        "gpus": "4",
        "gpu_model": "A100",
        "cpu_milli": "64",
        "memory_mib": "512GiB",
        "labels": "rack=r9",
    }
    assert client.post("/nodes/new", sent).status_code == 302
    node = Node.objects.get(name="n99")
    assert (node.gpus, node.cpu_milli, node.memory_mib, node.labels) == (4, 64_000, 524_288, {"rack": "r9"})
    client.post(f"/nodes/{node.pk}/labels", {"labels": "rack=r8", "revision": node.revision})
    node.refresh_from_db()
    assert node.labels == {"rack": "r8"}
    assert client.post(f"/nodes/{node.pk}/remove").status_code == 302
    assert not Node.objects.filter(name="n99").exists()


def test_a_node_with_work_on_it_is_not_removed(world: World, client_for: ClientFor):
    answer = client_for("platform").post(f"/nodes/{world.nodes[0].pk}/remove")
    assert answer.status_code == 422
    assert Node.objects.filter(pk=world.nodes[0].pk).exists()


def test_a_pool_takes_the_nodes_that_its_labels_choose(world: World, client_for: ClientFor):
    QuotaAmount.objects.filter(quota=world.quotas["south"]).update(guaranteed_gpu_milli=12 * GPU)
    QuotaAmount.objects.filter(quota=world.quotas["root"]).update(guaranteed_gpu_milli=24 * GPU)
    Node.objects.filter(pk=world.nodes[3].pk).update(gpu_model="A100")
    client = client_for("platform")
    sent = {"name": "a100", "selector": "gpu_model=A100", "placement": "spread", "kinds": ["training"], "order": "0"}
    NodePool.objects.filter(pk=world.pool.pk).update(order=1)
    assert client.post("/pools/new", sent).status_code == 302
    pool = NodePool.objects.get(name="a100")
    assert (pool.placement, pool.kinds) == ("spread", ["training"])
    assert list(pool.nodes.all()) == [world.nodes[3]]
    assert "gpu_model=A100" in client.get("/pools").content.decode()


@pytest.mark.parametrize(
    ("path", "sent", "field"),
    [
        ("/nodes/new", {"name": "n00", "gpus": "8"}, "name"),
        ("/nodes/new", {"name": "n98", "gpus": "65"}, "gpus"),
        ("/pools/new", {"name": "default", "placement": "binpack", "order": "0"}, "name"),
        ("/pools/new", {"name": "p", "placement": "binpack", "order": "0", "selector": "no equals"}, "selector"),
    ],
)
def test_wrong_nodes_and_pools_are_named_at_their_field(
    world: World, client_for: ClientFor, path: str, sent: dict[str, str], field: str
):
    answer = client_for("platform").post(path, sent)
    assert (answer.status_code, f'href="#id_{field}"' in answer.content.decode()) == (422, True)


@pytest.mark.parametrize("path", ["/nodes/new", "/pools/new"])
def test_only_the_platform_adds_nodes_and_pools(world: World, client_for: ClientFor, path: str):
    assert client_for("auditor").get(path).status_code == 403
    assert client_for("owner-b").get(path).status_code == 403
