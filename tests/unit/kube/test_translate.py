"""Kubernetes objects in roost's words; the real scheduler's word is in tests/kube."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.fleet.fleet import Fleet
from roost.kube.base.names import HOSTNAME_LABEL, RACK_LABEL, ZONE_LABEL
from roost.kube.base.selectors import PodSelector, pod_selector
from roost.kube.translate.amounts import pod_amounts
from roost.kube.translate.cluster import Cluster
from roost.kube.translate.nodes import Topology, translate_node
from roost.kube.translate.nodeselectors import node_choice
from roost.kube.translate.pods import Translated, Translator, describe, translate_pod
from roost.kube.translate.taints import (
    EFFECTS,
    tolerated,
    translate_taint,
    translate_tolerations,
)
from roost.model.constraints import Toleration
from roost.model.groups import GroupRule
from roost.model.hosts import Scope, Taint, TaintEffect
from roost.placement.engine import Engine
from roost.placement.explain import explain

Object = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
GIB = 2**30


def node(name: str = "n1", *, labels: Object | None = None, **spec: Any) -> Object:
    amounts = spec.pop("amounts", {"cpu": "4", "memory": "8Gi", "pods": "10"})
    ready = spec.pop("ready", "True")
    return {
        "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name} | (labels or {})},
        "spec": spec,
        "status": {
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def in_zone(name: str, zone: str, **spec: Any) -> Object:
    return node(name, labels={ZONE_LABEL: zone}, **spec)


def container(name: str = "c", **requests: str) -> Object:
    return {"name": name, "resources": {"requests": requests}}


def pod(name: str = "p", *, on: str = "", labels: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": labels or {"app": "web"}}
    spec.setdefault("containers", [container(cpu="500m", memory="1Gi")])
    return {"metadata": metadata, "spec": spec | ({"nodeName": on} if on else {})}


def apart(key: str = HOSTNAME_LABEL, app: str = "web", **more: Any) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} | more
    return {"podAntiAffinity": {REQUIRED: [term]}}


def spread(key: str = ZONE_LABEL, app: str = "web", **more: Any) -> Object:
    return {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    } | more


def ask(nodes: list[Object], pods: list[Object], waiting: Object) -> Translated:
    return translate_pod(Cluster(nodes, [*pods, waiting]), waiting)


def feasible(nodes: list[Object], pods: list[Object], waiting: Object) -> set[str]:
    cluster = Cluster(nodes, [*pods, waiting])
    engine = Engine(Fleet.from_description(describe(cluster)[0]))
    told = explain(engine, translate_pod(cluster, waiting).request)
    return {verdict.host for verdict in told.verdicts() if verdict.fits}


def whys(translated: Translated) -> str:
    return "; ".join(map(str, translated.unsupported))


# Amounts


def test_a_pod_is_charged_for_what_it_needs_at_its_largest() -> None:
    made = pod(
        containers=[container(cpu="500m", memory="1Gi"), container("d", cpu="250m")],
        initContainers=[container("first", cpu="2", memory="100Mi"), container("last", cpu="1")],
        overhead={"cpu": "10m", "memory": "64Mi"},
    )
    assert pod_amounts(made) == {"cpu": 2010, "memory": GIB + 64 * 2**20}


def test_a_sidecar_runs_on_beside_everything_started_after_it() -> None:
    sidecar = container("side", cpu="300m") | {"restartPolicy": "Always"}
    early, late = container("early", cpu="900m"), container("late", cpu="900m")
    one = pod(containers=[container(cpu="500m")], initContainers=[early, sidecar])
    other = pod(containers=[container(cpu="500m")], initContainers=[sidecar, late])
    assert pod_amounts(one)["cpu"] == 900
    assert pod_amounts(other)["cpu"] == 1200


def test_what_the_whole_pod_asks_for_goes_over_what_its_containers_do() -> None:
    asked = {"requests": {"cpu": "2", "example.com/gpu": "1"}}
    assert pod_amounts(pod(resources=asked)) == {"cpu": 2000, "memory": GIB}


def test_a_pod_being_resized_is_charged_the_larger_of_both() -> None:
    made = pod(on="n1") | {
        "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    }
    assert pod_amounts(made) == {"cpu": 2000, "memory": GIB}


def test_a_pod_that_asks_for_nothing_is_counted_as_little_and_it_is_said() -> None:
    translated = ask([node()], [], pod(containers=[container()]))
    assert translated.request.demand.cpu_milli == 1
    assert not translated.is_exact
    assert "requests.memory: asks for none" in whys(translated)


# Nodes


def test_a_node_becomes_a_host_with_all_that_can_be_asked_of_it() -> None:
    made = node(
        labels={ZONE_LABEL: "z1", RACK_LABEL: "r1", "kubernetes.io/arch": "arm64"},
        amounts={
            "cpu": "3500m", "memory": "8Gi", "pods": "7", "ephemeral-storage": "20Gi",
            "example.com/gpu": "2",
        },
        taints=[{"key": "dedicated", "value": "db", "effect": "NoSchedule"}],
    )  # fmt: skip
    host = translate_node(made)
    assert (host.cpu.total, host.memory.total, host.disk.total) == (3500, 8 * GIB, 20 * GIB)
    assert (host.zone, host.rack, host.architecture, host.max_vms) == ("z1", "r1", "aarch64", 7)
    assert [(name, each.total) for name, each in host.extended] == [("example.com/gpu", 2)]
    assert host.taints == (Taint("dedicated", "db"),)


@pytest.mark.parametrize("what", [{"unschedulable": True}, {"ready": "False"}])
def test_a_closed_node_is_refused_unless_its_taint_is_tolerated(what: Object) -> None:
    nodes = [node("shut", **what), node("open")]
    anything = pod(tolerations=[{"operator": "Exists"}])
    assert feasible(nodes, [], pod()) == {"open"}
    assert feasible(nodes, [], anything) == {"shut", "open"}


def test_an_uncommon_topology_key_takes_a_scope_that_nobody_uses() -> None:
    assert Topology.of({ZONE_LABEL, "room"}).scope("room") is Scope.RACK
    assert Topology.of({RACK_LABEL, "room"}).scope("room") is Scope.ZONE
    assert Topology.of({ZONE_LABEL, RACK_LABEL, "room"}).scope("room") is None
    assert Topology.of(()).scope(HOSTNAME_LABEL) is Scope.HOST


# Taints

_KEYS, _VALUES = st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "y"])
_TAINTS = st.builds(
    lambda key, value, effect: {"key": key, "value": value, "effect": effect},
    _KEYS, _VALUES, st.sampled_from(EFFECTS),
)  # fmt: skip
_TOLERATIONS = st.one_of(
    st.builds(
        lambda key, effect: {"operator": "Exists", "key": key, "effect": effect},
        st.sampled_from(["", "a", "b"]), st.sampled_from(["", *EFFECTS]),
    ),
    st.builds(
        lambda key, value, effect: {"key": key, "value": value, "effect": effect},
        _KEYS, _VALUES, st.sampled_from(["", *EFFECTS]),
    ),
)  # fmt: skip


@given(st.lists(_TAINTS, max_size=4), st.lists(_TOLERATIONS, max_size=3))
def test_a_taint_is_tolerated_in_both_worlds_or_in_none(
    taints: list[Object], tolerations: list[Object]
) -> None:
    translated, unsupported = translate_tolerations(pod(tolerations=tolerations), taints)
    assert not unsupported
    for taint in taints:
        ours = translate_taint(taint)
        covered = any(each.covers(ours.key, ours.value) for each in translated)
        assert covered == tolerated(taint, tolerations)


def test_an_effect_is_part_of_the_key_only_where_it_is_uncommon() -> None:
    taint = {"key": "gpu", "effect": "NoExecute"}
    assert translate_taint(taint) == Taint("gpu@NoExecute")
    assert translate_taint(taint | {"effect": "PreferNoSchedule"}).effect is TaintEffect.PREFER_NOT
    only = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert translate_tolerations(pod(tolerations=only), []) == ((Toleration("gpu"),), [])


def test_a_toleration_that_compares_numbers_is_listed() -> None:
    made = pod(tolerations=[{"key": "sla", "operator": "Gt", "value": "5"}])
    assert "tolerations: operator Gt" in whys(ask([node()], [], made))


# Node affinity

_EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        _KEYS, st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["1", "2", "x"]), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        _KEYS, st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda key, operator, value: {"key": key, "operator": operator, "values": [value]},
        _KEYS, st.sampled_from(["Gt", "Lt"]), st.sampled_from(["0", "1", "2"]),
    ),
)  # fmt: skip
_NAMES = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "NotIn"]), st.sampled_from(["n0", "n1"]),
)  # fmt: skip
_TERMS = st.builds(
    lambda expressions, names: {"matchExpressions": expressions, "matchFields": names},
    st.lists(_EXPRESSIONS, max_size=2), st.lists(_NAMES, max_size=1),
)  # fmt: skip
_LABELS = st.dictionaries(_KEYS, st.sampled_from(["1", "2", "x"]), max_size=2)


@given(st.lists(_LABELS, min_size=1, max_size=4), st.lists(_TERMS, min_size=1, max_size=3), _LABELS)
def test_hosts_pass_exactly_where_nodes_match(
    labels: list[Object], terms: list[Object], selector: Object
) -> None:
    nodes = [node(f"n{n}", labels=each) for n, each in enumerate(labels)]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    waiting = pod(affinity=affinity, nodeSelector=selector)
    expected = {each["metadata"]["name"] for each in nodes if node_choice(waiting).matches(each)}
    assert ask(nodes, [], waiting).is_exact
    assert feasible(nodes, [], waiting) == expected


def test_a_term_without_conditions_admits_no_node() -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}
    assert feasible([node()], [], pod(affinity=affinity)) == set()


def test_a_wish_with_one_condition_is_a_preference_and_others_are_listed_as_soft() -> None:
    one = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    two = {"matchExpressions": one["matchExpressions"] * 2}
    wishes = [{"weight": 7, "preference": one}, {"weight": 9, "preference": two}]
    translated = ask([node()], [], pod(affinity={"nodeAffinity": {PREFERRED: wishes}}))
    assert [each.weight for each in translated.request.constraints.preferences] == [7]
    assert translated.is_exact
    assert "a wish of roost has one condition" in whys(translated)


# Selectors

_REQUIREMENTS = st.lists(
    st.builds(
        lambda key, operator, values: (
            {"key": key, "operator": operator}
            | ({"values": values} if operator in ("In", "NotIn") else {})
        ),
        _KEYS,
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=2),
    ),
    max_size=3,
)


@given(_REQUIREMENTS, _REQUIREMENTS, _LABELS)
def test_two_selectors_together_select_what_both_do(
    one: list[Object], other: list[Object], labels: dict[str, str]
) -> None:
    first, second = (
        pod_selector({"matchExpressions": one}),
        pod_selector({"matchExpressions": other}),
    )
    assert (first & second).matches(labels) == (first.matches(labels) and second.matches(labels))
    assert first & second == second & first


def test_the_same_selector_written_differently_is_the_same() -> None:
    one = pod_selector({"matchLabels": {"app": "web"}})
    other = pod_selector(
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "web"]}]}
    )
    assert one == other
    assert str(one) == "app=web"
    assert str(PodSelector()) == "every pod"


# Groups


def test_anti_affinity_to_its_own_like_is_a_group() -> None:
    nodes = [node("n1"), node("n2")]
    waiting = pod(affinity=apart())
    placed = pod("q", on="n1", affinity=apart())
    [group] = ask(nodes, [placed], waiting).request.groups
    assert (group.rule, group.scope, group.hard) == (GroupRule.ANTI_AFFINITY, Scope.HOST, True)
    assert feasible(nodes, [placed], waiting) == {"n2"}


def test_a_pod_that_others_keep_away_joins_their_group_when_all_are_in_it() -> None:
    nodes = [node("n1"), node("n2")]
    placed = pod("q", on="n1", affinity=apart())
    assert ask(nodes, [placed], pod()).is_exact
    assert feasible(nodes, [placed], pod()) == {"n2"}


def test_a_one_sided_anti_affinity_is_listed() -> None:
    nodes = [node("n1"), node("n2")]
    placed = [pod("q", on="n1", affinity=apart()), pod("r", on="n2")]
    assert "default/q keeps this pod away" in whys(ask(nodes, placed, pod()))


@pytest.mark.parametrize(
    ("affinity", "why"),
    [
        (apart(app="db"), "other pods than this one's like"),
        (apart(namespaceSelector={}), "other namespaces"),
        (apart(namespaces=["other"]), "other namespaces"),
        (apart(ZONE_LABEL), "has no topology.kubernetes.io/zone and passes"),
    ],
)
def test_anti_affinity_that_means_something_else_is_listed(affinity: Object, why: str) -> None:
    translated = ask([node()], [], pod(affinity=affinity))
    assert why in whys(translated)
    assert not translated.is_exact


def test_spread_counts_neither_ending_nor_finished_pods() -> None:
    nodes = [in_zone("a1", "a"), in_zone("b1", "b")]
    ending = pod("q", on="a1")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    finished = pod("r", on="a1") | {"status": {"phase": "Succeeded"}}
    waiting = pod(topologySpreadConstraints=[spread()])
    assert feasible(nodes, [ending, finished], waiting) == {"a1", "b1"}
    assert feasible(nodes, [pod("s", on="a1")], waiting) == {"b1"}


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (spread(), "domain b counts in one of the two only"),
        (spread(nodeTaintsPolicy="Honor", minDomains=2), "minDomains 2 is more than the 1 domains"),
        (spread(app="db"), "counts other pods"),
        (spread(nodeAffinityPolicy="Ignore"), "domain b counts in one of the two only"),
    ],
)
def test_spread_that_counts_differently_here_is_listed(rule: Object, why: str) -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    nodes = [in_zone("a1", "a"), in_zone("b1", "b", taints=[taint])]
    assert why in whys(ask(nodes, [], pod(topologySpreadConstraints=[rule])))
    tolerant = pod(topologySpreadConstraints=[spread()], tolerations=[{"operator": "Exists"}])
    assert ask(nodes, [], tolerant).is_exact


def test_members_that_kubernetes_would_not_count_are_noticed() -> None:
    nodes = [in_zone("a1", "a"), node("a2", labels={ZONE_LABEL: "a", "disk": "ssd"})]
    waiting = pod(topologySpreadConstraints=[spread()], nodeSelector={"disk": "ssd"})
    assert ask(nodes, [], waiting).is_exact
    told = whys(ask(nodes, [pod("q", on="a1")], waiting))
    assert "outside the pod's node affinity do not count" in told


def test_a_third_topology_key_is_listed() -> None:
    keys = (ZONE_LABEL, RACK_LABEL, "room")
    nodes = [node(labels=dict.fromkeys(keys, "x"))]
    waiting = pod(topologySpreadConstraints=[spread(key) for key in keys])
    assert "topology key room is one more" in whys(ask(nodes, [], waiting))


def test_several_required_affinities_count_only_pods_that_satisfy_all() -> None:
    nodes = [in_zone("a1", "a"), in_zone("b1", "b")]
    labels = {"app": "web", "tier": "front"}
    terms = [
        {"topologyKey": ZONE_LABEL, "labelSelector": {"matchLabels": {key: value}}}
        for key, value in labels.items()
    ]
    waiting = pod(labels=labels, affinity={"podAffinity": {REQUIRED: terms}})
    half = pod("q", on="a1", labels={"app": "web", "tier": "back"})
    whole = pod("r", on="b1", labels=labels)
    assert feasible(nodes, [half], waiting) == {"a1", "b1"}
    assert feasible(nodes, [half, whole], waiting) == {"b1"}


def test_wishes_about_other_pods_are_soft_groups() -> None:
    term = {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "web"}}}
    wish = {PREFERRED: [{"weight": 30, "podAffinityTerm": term}]}
    translated = ask(
        [node(labels={ZONE_LABEL: "a"})], [],
        pod(
            affinity={"podAntiAffinity": wish},
            topologySpreadConstraints=[spread(whenUnsatisfiable="ScheduleAnyway")],
        ),
    )  # fmt: skip
    assert [(each.hard, each.weight) for each in translated.request.groups] == [
        (False, 30),
        (False, 50),
    ]
    assert translated.is_exact


# What is left


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedulingGates": [{"name": "g"}]}, "schedulingGates"),
        ({"resourceClaims": [{"name": "g"}]}, "resourceClaims"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "volumes"),
        (
            {"containers": [container(cpu="1", memory="1Gi") | {"ports": [{"hostPort": 80}]}]},
            "containers.ports.hostPort",
        ),
    ],
)
def test_what_roost_does_not_know_is_listed(spec: Object, field: str) -> None:
    translated = ask([node()], [], pod(**spec))
    assert [each.field for each in translated.unsupported] == [field]
    assert not translated.is_exact


def test_volumes_that_any_node_can_mount_are_no_matter() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {}}]
    assert ask([node()], [], pod(volumes=volumes)).unsupported == ()


def test_pods_of_one_template_are_translated_once_and_keep_their_names() -> None:
    pods = [pod(f"p{n}", affinity=apart()) for n in range(3)]
    translator = Translator(Cluster([node()], pods))
    requests = [translator.pod(each).request for each in pods]
    assert [each.name for each in requests] == ["default/p0", "default/p1", "default/p2"]
    assert len({id(each.constraints) for each in requests}) == 1


def test_a_pod_that_names_its_node_is_pinned_to_it() -> None:
    assert feasible([node("n1"), node("n2")], [], pod(on="n2")) == {"n2"}
    elsewhere = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [elsewhere]}]}}}
    assert feasible([node("n1"), node("n2")], [], pod(on="n2", affinity=affinity)) == set()
