"""roost and kube-scheduler find the same nodes feasible, on random clusters and pods.

The real scheduler is started beside nodes and pods that are all there, with an extender that is
handed what passed its filters. The same objects are translated into a fleet and a request.

Not compared, and counted, are pods with a rule that roost says it cannot say the same way. Which
these are is in UNSUPPORTED; a new one fails the test until it is listed.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from roost.fleet.fleet import Fleet
from roost.kube.base.client import NAMESPACES, NODES, PODS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.parts import API, ETCD, SCHEDULER, Setup
from roost.kube.translate.cluster import Cluster
from roost.kube.translate.pods import Translated, describe, translate_pod
from roost.kube.translate.taints import PREFER_NOT, tolerated
from roost.model.flow import PlaceRequest
from roost.model.reasons import Reason
from roost.placement.engine import Engine
from roost.placement.explain import Explanation, explain
from tests.kube.cases import KINDS, NAMESPACE, Case, make_case
from tests.kube.clusters import LIMIT_S, need_tools, run
from tests.kube.extender import Extender, listening

CASES_PER_KIND = 30
_SEED = 6
#: Every kind of rule that is listed rather than translated, by some words of what is said.
UNSUPPORTED = {
    "keeps this pod away": "a one-sided anti-affinity, which not all it speaks of have",
    "speaks of other pods": "a selector that does not select the pod itself",
    "counts other pods": "a spread over pods that are not like the pod itself",
    "passes in Kubernetes": "anti-affinity with nodes that lack the topology key",
    "counts in one of the two only": "spread, a domain whose nodes are all tainted, or lack a key",
    "do not count in Kubernetes": "spread, with pods on nodes outside the pod's node affinity",
    "minDomains": "spread that wants more domains than there are",
    "lack a topology key": "affinity by several keys, pods on nodes that lack one of them",
    "one more than roost has scopes for": "a third topology key besides the host",
}


@dataclass
class Answer:
    """What the scheduler did with one pod that waits, beside the objects it saw."""

    case: Case
    pod: Object
    cluster: Cluster
    feasible: frozenset[str]
    refusals: Counter[str] | None  # by kind of cause; None: counted in another way
    translated: Translated

    def told(self, request: PlaceRequest | None = None) -> Explanation:
        """Return what roost says, to the translated request or to another one."""
        fleet = Fleet.from_description(describe(self.cluster)[0])
        return explain(Engine(fleet), request or self.translated.request)

    def as_yaml(self) -> str:
        """Write the case down, so that it can be tried by hand."""
        shown = [
            *self.cluster.nodes.values(),
            *(pod for pods in self.cluster.placed.values() for pod in pods),
            self.pod,
        ]
        return yaml.safe_dump_all([_bare(item) for item in shown], sort_keys=False)


def _bare(item: Object) -> Object:
    metadata = item["metadata"]
    kept = {
        key: metadata[key] for key in ("name", "labels", "deletionTimestamp") if key in metadata
    }
    status = item.get("status", {})
    amounts = {"status": {"allocatable": status["allocatable"]}} if "allocatable" in status else {}
    return {"kind": item["kind"], "metadata": kept, "spec": item["spec"]} | amounts


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """Ask the real scheduler about every case at once."""
    need_tools()
    return run(lambda: _ask(tmp_path_factory.mktemp("agreement")))


async def _ask(folder: Path) -> list[Answer]:
    cases = [
        make_case(kind, first * CASES_PER_KIND + n, _SEED + n)
        for first, kind in enumerate(KINDS)
        for n in range(CASES_PER_KIND)
    ]
    cluster = LocalCluster(folder)
    async with listening() as extender:
        scheduler = {"extenders": [extender.configuration], "percentageOfNodesToScore": 100}
        parts = (ETCD, API, SCHEDULER)
        await cluster.up(Setup(pools=(), parts=parts, scheduler=scheduler), attached=True)
        try:
            # It must see everything before it decides anything.
            await cluster.stop_part(SCHEDULER)
            async with await cluster.connect() as kube:
                await _create(kube, cases)
                await cluster.start_part(SCHEDULER, attached=True)
                return await _answers(kube, cases, extender)
        finally:
            await cluster.down()


async def _create(kube: Kube, cases: list[Case]) -> None:
    await kube.ensure(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await each_of(
        (node for case in cases for node in case.nodes), lambda node: kube.create(NODES, node)
    )
    pods = [pod for case in cases for pod in (*case.placed, *case.waiting)]
    await each_of(pods, lambda pod: kube.create(PODS, pod, NAMESPACE))
    await each_of(
        (name for case in cases for name in case.ending),
        lambda name: kube.delete(PODS, name, NAMESPACE),
    )
    await each_of(
        (name for case in cases for name in case.finished),
        lambda name: kube.patch(
            PODS, name, {"status": {"phase": "Succeeded"}}, NAMESPACE, part="status"
        ),
    )


async def _answers(kube: Kube, cases: list[Case], extender: Extender) -> list[Answer]:
    waiting = {pod["metadata"]["name"] for case in cases for pod in case.waiting}
    pods = await Mirror(kube, PODS, NAMESPACE).start()
    try:
        await pods.until(
            lambda: all(_refusal(pods.get(name, NAMESPACE) or {}) for name in waiting), 2 * LIMIT_S
        )
        return _compare(
            cases,
            {node["metadata"]["name"]: node for node in (await kube.list(NODES)).items},
            {pod["metadata"]["name"]: pod for pod in pods},
            extender,
        )
    finally:
        await pods.stop()


def _refusal(pod: Object) -> str:
    """Return why the scheduler left a pod where it is; it always does, if only by the extender."""
    for each in pod.get("status", {}).get("conditions") or ():
        if each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable":
            return str(each["message"])
    return ""


def _compare(
    cases: list[Case], nodes: dict[str, Object], pods: dict[str, Object], extender: Extender
) -> list[Answer]:
    answers = []
    for case in cases:
        names = {node["metadata"]["name"] for node in case.nodes}
        cluster = Cluster(
            (nodes[name] for name in sorted(names)),
            (pods[pod["metadata"]["name"]] for pod in (*case.placed, *case.waiting)),
        )
        elsewhere = [node for name, node in nodes.items() if name not in names]
        for asked in case.waiting:
            pod = pods[asked["metadata"]["name"]]
            passed = set(extender.passed.get(asked["metadata"]["name"], [frozenset()]))
            assert len(passed) == 1, f"nothing changed, and yet the scheduler says {passed}"
            [feasible] = passed
            message = _refusal(pod)
            # Terms that name nodes narrow the search first, and then no node is asked for more.
            named = "didn't satisfy plugin(s) [NodeAffinity]" in message
            refusals = None if named else _causes(message) - _elsewhere(elsewhere, pod)
            answers.append(
                Answer(case, pod, cluster, feasible, refusals, translate_pod(cluster, pod))
            )
    return answers


# Why no node is feasible, in words that both sides share

_CAUSES = {
    "had untolerated taint": "taint",
    "were unschedulable": "taint",
    "didn't match Pod's node affinity/selector": "node affinity",
    "Too many pods": "pods",
    "Insufficient cpu": "cpu",
    "Insufficient memory": "memory",
    "Insufficient ephemeral-storage": "disk",
    "Insufficient example.com/gpu": "extended",
    "didn't match pod topology spread constraints": "spread",
    "didn't match pod affinity rules": "affinity",
    "didn't match pod anti-affinity rules": "anti-affinity",
    "didn't satisfy existing pods anti-affinity rules": "anti-affinity",
}
_NODE_AFFINITY = {Reason.LABELS, Reason.PREDICATE, Reason.NOT_PINNED, Reason.EXCLUDED}
_AMOUNTS = {
    Reason.MAX_VMS: "pods",
    Reason.CPU: "cpu",
    Reason.MEMORY: "memory",
    Reason.DISK: "disk",
    Reason.EXTENDED: "extended",
}


def _causes(message: str) -> Counter[str]:
    """Return how many nodes the scheduler says each cause refused."""
    found: Counter[str] = Counter()
    told = message.partition(": ")[2].partition(". ")[0].rstrip(".")
    for count, words in re.findall(r"(\d+) ([^,]+)", told):
        [cause] = {cause for text, cause in _CAUSES.items() if text in words} or {words}
        found[cause] += int(count)
    return found


def _elsewhere(nodes: list[Object], pod: Object) -> Counter[str]:
    """Return what nodes of other cases are refused for: taints are looked at before labels."""
    tolerations = pod["spec"].get("tolerations") or ()
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    found: Counter[str] = Counter()
    for node in nodes:
        taints = [*(node["spec"].get("taints") or ())]
        taints += [cordon] if node["spec"].get("unschedulable") else []
        hard = [each for each in taints if each["effect"] != PREFER_NOT]
        clean = all(tolerated(each, tolerations) for each in hard)
        found["node affinity" if clean else "taint"] += 1
    return found


def _as_the_scheduler_counts(told: Explanation) -> Counter[str]:
    """Return roost's reasons in kube-scheduler's order: its first failing filter names the cause.

    Amounts are one filter, which names each that is short.
    """
    found: Counter[str] = Counter()
    for verdict in told.verdicts():
        reasons = set(verdict.reasons)
        if Reason.TAINT in reasons:
            found["taint"] += 1
        elif reasons & _NODE_AFFINITY:
            found["node affinity"] += 1
        elif amounts := [word for reason, word in _AMOUNTS.items() if reason in reasons]:
            found.update(amounts)
        elif Reason.SPREAD in reasons:
            found["spread"] += 1
        elif Reason.AFFINITY in reasons:
            found["affinity"] += 1
        else:
            found.update(["anti-affinity"] if Reason.ANTI_AFFINITY in reasons else [])
    return found


def _fitting(told: Explanation) -> frozenset[str]:
    verdicts = list(told.verdicts())
    fits = {verdict.host for verdict in verdicts if verdict.fits}
    assert fits == {verdict.host for verdict in verdicts if verdict.score is not None}
    return frozenset(fits)


# What must hold


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_nodes_are_feasible_for_roost_and_kube_scheduler(
    answers: list[Answer], kind: str
) -> None:
    exact = [
        answer for answer in answers if answer.case.kind == kind and answer.translated.is_exact
    ]
    for answer in exact:
        ours = _fitting(answer.told())
        assert ours == answer.feasible, (
            f"kube-scheduler: {sorted(answer.feasible)}, roost: {sorted(ours)}\n{answer.as_yaml()}"
        )
    everything = [len(answer.cluster.nodes) for answer in exact]
    sizes = [len(answer.feasible) for answer in exact]
    # Both ends, and what lies between, or the comparison would say little.
    assert len(exact) >= CASES_PER_KIND // 2
    assert 0 in sizes or kind in ("spread", "affinity")  # alone these leave some domain
    assert any(0 < size < all_of for size, all_of in zip(sizes, everything, strict=True))


def test_the_reasons_of_a_refusal_agree_in_kind_and_number(answers: list[Answer]) -> None:
    refused = [
        each
        for each in answers
        if not each.feasible and each.translated.is_exact and each.refusals is not None
    ]
    seen: set[str] = set()
    for answer in refused:
        ours, theirs = _as_the_scheduler_counts(answer.told()), answer.refusals
        assert ours == theirs, f"kube-scheduler: {theirs}, roost: {ours}\n{answer.as_yaml()}"
        seen |= ours.keys()
    assert seen == set(_CAUSES.values())


_BROKEN: dict[str, Callable[[PlaceRequest], PlaceRequest]] = {
    "requests": lambda request: replace(
        request, demand=replace(request.demand, cpu_milli=max(1, request.demand.cpu_milli - 100))
    ),
    "taints": lambda request: _with(request, tolerations=()),
    "node affinity": lambda request: _with(request, labels=()),
    "anti-affinity": lambda request: replace(request, groups=()),
    "spread": lambda request: replace(request, groups=()),
    "affinity": lambda request: replace(request, groups=()),
}


def _with(request: PlaceRequest, **changes: Any) -> PlaceRequest:
    return replace(request, constraints=replace(request.constraints, **changes))


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", _BROKEN)
def test_a_translation_that_forgets_a_rule_is_caught(answers: list[Answer], kind: str) -> None:
    exact = [
        answer for answer in answers if answer.case.kind == kind and answer.translated.is_exact
    ]
    caught = [
        answer
        for answer in exact
        if _fitting(answer.told(_BROKEN[kind](answer.translated.request))) != answer.feasible
    ]
    assert len(caught) >= 3


def test_what_is_not_translated_is_listed_here_and_is_the_smaller_part(
    answers: list[Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    counted: Counter[str] = Counter()
    for answer in answers:
        for each in answer.translated.unsupported:
            if each.hard:
                [known] = [words for words in UNSUPPORTED if words in each.why]
                counted[known] += 1
    exact = sum(answer.translated.is_exact for answer in answers)
    with capsys.disabled():
        print(f"\n{exact} of {len(answers)} pods compared; not translated: {dict(counted)}")
    assert exact > 0.7 * len(answers)
