"""Scenarios on Kubernetes: what a file may say, and what a seed makes of it."""

import pytest

from roost.base.errors import InvalidRequest, NotFound
from roost.kube.cluster.nodes import NodePool
from roost.kube.script.scenario import (
    Create,
    LoadStep,
    all_vms,
    find_scenario,
    parse_scenario,
    read_scenario,
    shipped,
    timeline,
)

SMALL = """
about: a test
duration: 1m
nodes:
  - {count: 3, zones: [a, b]}
"""
VMS = "vms: [{name: web, count: 4, cpu: [1, 4], memory: [1GiB, 4GiB], variance: 0.05}]\n"


def small(more: str, vms: str = VMS):
    return parse_scenario(SMALL + vms + more, "test.yaml")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("steps: [{at: 1s, do: migrat, on: web-1}]", "test.yaml:7: invalid value 'migrat'"),
        ("steps:\n  - at: 1s\n    do: kill\n    nod: x", "test.yaml:10: object contains unknown"),
        (
            "steps:\n  - {at: 1s, do: evict, on: web-1}\n  - {at: 1s, do: evict, on: web-9}",
            "test.yaml:9: there is no VM 'web-9'; there is web-1, web-2, web-3, web-4",
        ),
        ("steps: [{at: 1s, do: evict, on: {pool: db}}]", "there is no pool 'db'; there is web"),
        ("steps: [{at: 1s, do: kill, node: sim-node-4}]", "no node 'sim-node-4'; there is coldest"),
        ("steps: [{at: 1s, do: load, on: web-1}]", "test.yaml:7: a load has either `to` or `add`"),
        (
            "steps: [{at: 1s, do: load, on: web-1, to: {cpu: 2}}]",
            "test.yaml:7: 2 is no share from 0 to 1, at steps.0..to.cpu",
        ),
        (
            "steps: [{at: 1s, do: create, vms: [{name: web, count: 2}]}]",
            "two VMs are called 'web-1'",
        ),
        ("steps: [{at: 1s, do: create, vms: [{name: c, zones: [d]}]}]", "test.yaml:7: .*zone 'd'"),
        (
            "generators: [{name: g, every: 0, on: {}, to: {cpu: 1}}]",
            "test.yaml:7: a generator needs some time between its loads",
        ),
        ("descheduler: {every: 0}", "test.yaml:7: the descheduler needs some time"),
        ("descheduler: {over: 101}", "test.yaml:7: expected `int` <= 100"),
        ("expect: {balanced_after: 3s}", "test.yaml:7: balanced_after needs balanced_within"),
        ("expect: {pendings: 3}", "test.yaml:7: object contains unknown field `pendings`"),
        ("migration: {bandwidth_mbps: 0}", "test.yaml:7: expected `float` > 0"),
    ],
)
def test_a_mistake_is_told_with_its_line(more: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        small(more)


@pytest.mark.parametrize(
    ("vms", "words"),
    [
        ("vms: []", "test.yaml:6: expected `array` of length >= 1"),
        ("vms: [{name: Web}]", "test.yaml:6: expected `str` matching regex"),
        ("vms: [{name: w, zones: [c]}]", "test.yaml:6: there is no zone 'c'; there is a, b"),
        ("vms: [{name: w, groups: [{name: g, rule: near}]}]", "test.yaml:6: invalid enum value"),
        ("vms: [{name: w, node: other}]", "test.yaml:6: there is no node 'other'"),
    ],
)
def test_a_mistake_in_the_vms_is_told_too(vms: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        small("", vms)


def test_bad_nodes_and_endless_generators_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"t:2: cpu 'many' is not a number .*nodes\[0\]"):
        parse_scenario("about: a\nnodes: [{cpu: many}]\nvms: [{name: w}]", "t")
    with pytest.raises(InvalidRequest, match="generator 'g' never ends"):
        parse_scenario(
            "about: a\nvms: [{name: w}]\ngenerators: [{name: g, every: 1s, on: {}, to: {cpu: 1}}]",
            "t",
        )
    with pytest.raises(InvalidRequest, match="with a descheduler a scenario needs a duration"):
        parse_scenario("about: a\nvms: [{name: w}]\ndescheduler: {}", "t")


def test_what_to_do_is_listed_when_nobody_knows_it() -> None:
    with pytest.raises(InvalidRequest) as told:
        small("steps: [{at: 1s, do: dance}]")
    assert "migrate, load, evict" in (told.value.hint or "")


def test_nodes_that_are_there_already_may_have_any_name() -> None:
    found = parse_scenario(
        "about: a\nvms: [{name: w, zones: [x]}]\nsteps: [{at: 0, do: kill, node: n}]", "t"
    )
    assert found.node_names == []


def test_one_seed_makes_one_list_of_vms() -> None:
    scenario = small("")
    first, again = all_vms(scenario.vms, 1, "n"), all_vms(scenario.vms, 1, "n")
    assert first == again
    assert first != all_vms(scenario.vms, 2, "n")
    assert [vm.name for vm in first] == ["web-1", "web-2", "web-3", "web-4"]
    assert all(1000 <= vm.cpu_milli <= 4000 for vm in first)
    assert all(vm.memory_bytes % 2**20 == 0 for vm in first)
    assert all(0.45 <= vm.cpu_utilization <= 0.55 for vm in first)
    assert len({vm.cpu_utilization for vm in first}) == 4


def test_more_vms_change_no_other() -> None:
    few, many = small(""), small("", VMS.replace("count: 4", "count: 9"))
    assert all_vms(many.vms, 1, "n")[:4] == all_vms(few.vms, 1, "n")


def test_without_a_count_a_pool_is_one_vm() -> None:
    one = small("", "vms: [{name: db, cpu: 8, memory: 16GiB, node: sim-node-1}]")
    (vm,) = all_vms(one.vms, 1, "n")
    assert (vm.name, vm.cpu_milli, vm.memory_bytes) == ("db", 8000, 16 * 2**30)
    assert vm.node == "sim-node-1"


GENERATED = """
steps:
  - {at: 20s, do: create, vms: [{name: late}]}
  - {at: 10s, do: cordon, node: hottest}
generators:
  - {name: heat, every: 10s, on: {node: hottest, count: 1}, add: {cpu: [0.3, 0.5]}, for: 5s}
  - name: spikes
    from: 30s
    every: {exponential: 2s}
    rate: {poisson: 2}
    on: {count: 3}
    to: {cpu: 0.9, memory: 0.9}
    for: {exponential: 4s}
"""


def test_a_seed_fixes_every_moment() -> None:
    scenario = small(GENERATED)
    first, again, other = (timeline(scenario, seed) for seed in (1, 1, 2))
    assert [(m.at, m.source, repr(m.step)) for m in first] == [
        (m.at, m.source, repr(m.step)) for m in again
    ]
    assert [m.at for m in first] == sorted(m.at for m in first)
    assert [m.at for m in first] != [m.at for m in other]
    heat = [m for m in first if m.source == "heat"]
    assert [m.at for m in heat] == [0, 10, 20, 30, 40, 50]
    assert all(isinstance(m.step, LoadStep) and 0.3 <= m.step.add.cpu.low <= 0.5 for m in heat)
    spikes = [m for m in first if m.source == "spikes"]
    assert min(m.at for m in spikes) >= 30
    assert max(m.at for m in spikes) < 60
    assert 10 < len(spikes) < 60
    assert isinstance(next(m.step for m in first if m.at == 20 and not m.source), Create)


def test_one_generator_leaves_the_others_as_they_were() -> None:
    scenario, alone = small(GENERATED), small(GENERATED)
    alone.generators = alone.generators[1:]
    spikes = [
        [(m.at, repr(m.step)) for m in timeline(each, 5) if m.source == "spikes"]
        for each in (scenario, alone)
    ]
    assert spikes[0] == spikes[1]


def test_every_shipped_scenario_is_sound() -> None:
    names = {
        "initial-placement", "migration-elsewhere", "resource-exhaustion", "light", "mixed",
        "heavy", "progression", "heat-and-chase",
    }  # fmt: skip
    assert names <= set(shipped())
    for name, path in shipped().items():
        scenario = read_scenario(path)
        assert find_scenario(name) == path
        assert scenario.about.endswith(".")
        assert scenario.nodes, name
        assert all(isinstance(pool, NodePool) for pool in scenario.nodes)
        assert timeline(scenario, 1) == timeline(scenario, 1)


def test_a_scenario_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match=r"shipped are .*heat-and-chase"):
        find_scenario("nothing")
