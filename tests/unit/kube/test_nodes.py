"""Fake nodes stand where their pool says."""

from collections import Counter

import pytest

from roost.base.errors import InvalidRequest
from roost.kube.base.names import RACK_LABEL, ZONE_LABEL
from roost.kube.cluster.nodes import NodePool, kwok_stages


def test_nodes_stand_in_turn_in_zones_and_racks() -> None:
    labels = [
        node["metadata"]["labels"] for node in NodePool(count=12, zones=("a", "b"), racks=3).nodes()
    ]
    assert Counter(each[ZONE_LABEL] for each in labels) == {"a": 6, "b": 6}
    assert set(Counter(each[RACK_LABEL] for each in labels).values()) == {2}
    # A rack is in one zone.
    assert all(each[RACK_LABEL].startswith(each[ZONE_LABEL]) for each in labels)


def test_a_pool_without_zones_has_no_zone() -> None:
    node = NodePool().node(0)
    assert ZONE_LABEL not in node["metadata"]["labels"]
    assert node["metadata"]["name"] == "kwok-node-1"
    assert node["status"]["allocatable"] == {
        "cpu": "32000m",
        "memory": str(128 * 2**30),
        "pods": "110",
    }


def test_amounts_without_sense_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        NodePool(memory="128Gb")


def test_no_stage_takes_a_pod_that_somebody_keeps() -> None:
    [gone] = [stage for stage in kwok_stages() if stage["spec"]["next"].get("delete")]
    asked = {each["key"]: each["operator"] for each in gone["spec"]["selector"]["matchExpressions"]}
    assert asked[".metadata.finalizers"] == "DoesNotExist"
    assert "finalizers" not in gone["spec"]["next"]
