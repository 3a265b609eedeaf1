"""A VM as an object and back; what people write about one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest
from roost.kube.vms.crd import crd
from roost.kube.vms.spec import (
    VM,
    Group,
    from_object,
    group_text,
    number_text,
    parse_group,
    to_object,
)
from roost.kube.vms.vmfile import parse_vms

_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
groups = st.builds(
    Group,
    name=_names,
    rule=st.sampled_from(["affinity", "anti-affinity", "spread"]),
    scope=st.sampled_from(["host", "rack", "zone"]),
    hard=st.booleans(),
    max_skew=st.integers(1, 5),
)
vms = st.builds(
    VM,
    name=_names,
    namespace=_names,
    cpu_milli=st.integers(1, 10**6),
    memory_bytes=st.integers(1, 2**50),
    cpu_utilization=st.floats(0, 1),
    memory_utilization=st.floats(0, 1),
    dirty_rate_mbps=st.floats(0, 10**6),
    running=st.booleans(),
    zones=st.lists(_names, max_size=3).map(tuple),
    node_labels=st.dictionaries(_names, _names, max_size=3),
    groups=st.lists(groups, max_size=4).map(tuple),
    node=st.just("") | _names,
)


@given(vms)
def test_a_vm_survives_being_an_object(vm: VM) -> None:
    assert from_object(to_object(vm)) == vm


@given(vms)
def test_the_api_server_will_take_what_we_write(vm: VM) -> None:
    version = crd()["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    written = to_object(vm)["spec"]
    for part in ("resources", "utilization"):
        for key, value in written[part].items():
            assert re.search(spec[part]["properties"][key]["pattern"], value), (key, value)


@given(st.floats(0, 1e9))
def test_a_number_is_read_back_as_it_was_and_has_no_exponent(number: float) -> None:
    text = number_text(number)
    assert float(text) == number
    assert "e" not in text


@given(groups)
def test_a_group_is_read_as_it_is_written(group: Group) -> None:
    assert parse_group(group_text(group)) == group


@pytest.mark.parametrize(
    "text", ["web", "web apart", "web spread planet", "Web spread", "web spread max-skew=0"]
)
def test_a_group_that_makes_no_sense_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_group(text)
    assert "web anti-affinity host" in (refused.value.hint or "")


def test_a_file_of_vms_is_read_with_its_counts() -> None:
    text = """
- {name: web, count: 2, cpu: 0.5, memory: 8GiB, groups: [web anti-affinity host]}
- {name: db, cpu: 8, memory: 32Gi, zones: [a, b]}
"""
    web1, web2, db = parse_vms(text, "space")
    assert (web1.name, web2.name, db.name) == ("web-1", "web-2", "db")
    assert (web1.cpu_milli, web1.memory_bytes, web1.namespace) == (500, 8 * 2**30, "space")
    assert web1.groups == (Group(name="web", rule="anti-affinity"),)
    assert db.zones == ("a", "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {name: a, cpu: 1}", r"f\.yaml:1: .*memory"),
        ("- {name: a, cpu: 1, memory: 1Gi}\n- {name: b, cpus: 1}", r"f\.yaml:2: .*cpus"),
        ("- {name: a, cpu: 1, memory: much}", r"f\.yaml:1: .*much"),
        ("- {name: a, cpu: 1, memory: 1Gi, groups: [web near]}", r"f\.yaml:1: .*near"),
        ("- {name: A_b, cpu: 1, memory: 1Gi}", r"f\.yaml:1: "),
        ("- {name: a, cpu: 0, memory: 1Gi}", r"f\.yaml: .*cpu and memory"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse_vms(text, "space", "f.yaml")
