"""What a migration says of itself, and when its pods are of no use."""

from typing import Any

import pytest

from roost.kube.moving.migrationrecord import sentence, why_lost


def pod(node: str = "n1", phase: str = "Running", **metadata: Any) -> Any:
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


def node(ready: str = "True") -> Any:
    return {"status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    ("lost", "at", "why"),
    [
        (None, None, "the source pod is gone"),
        (pod(deletionTimestamp="2026-01-01T00:00:00Z"), node(), "the source pod was deleted"),
        (pod(phase="Failed"), node(), "the source pod has ended"),
        (pod(), None, "node n1 of the source is gone"),
        (pod(), node("False"), "node n1 of the source is not ready"),
        (pod(), node("Unknown"), "node n1 of the source is not ready"),
        (pod(), node(), ""),
        (pod("", "Pending"), None, ""),
    ],
)
def test_a_pod_is_of_use_while_it_and_its_node_are_there(lost: Any, at: Any, why: str) -> None:
    assert why_lost(lost, at, "source") == why


@pytest.mark.parametrize(
    ("migration", "said"),
    [
        ({"targetNode": "b"}, "moved from a to b: scheduler chose b"),
        ({"targetNode": "b", "wantedNode": "c"}, "moved from a to b: wanted c, scheduler chose b"),
        (
            {"targetNode": "b", "wantedNode": "b"},
            "moved from a to b: wanted b, and so did the scheduler",
        ),
        ({"targetNode": "b", "forcedNode": "b"}, "moved from a to b: forced to b"),
        ({"phase": "Failed", "reason": "no room"}, "migration from a failed: no room"),
    ],
)
def test_it_says_what_was_wanted_and_what_came_of_it(migration: Any, said: str) -> None:
    assert sentence({"phase": "Succeeded", "sourceNode": "a"} | migration) == said
