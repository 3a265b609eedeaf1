"""roost's engine in this process, on fleet and requests translated from the same objects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import Span, timed
from benchmarks.kube.workload import Case, check, same_rule
from roost.fleet.fleet import Fleet
from roost.kube.base.objects import Object
from roost.kube.translate.cluster import Cluster
from roost.kube.translate.pods import Translator, describe
from roost.model.flow import Answer, Placement, PlaceRequest
from roost.placement.engine import Engine

#: Compiles or loads the kernels, and fills what an engine keeps.
_WARM = 20


@dataclass
class Speed:
    """The best of some rounds."""

    per_s: float
    cpu_us: float


def fleet_and_requests(
    case: Case, nodes: Sequence[Object], pods: Sequence[Object]
) -> tuple[Fleet, list[PlaceRequest]]:
    """Translate what the API server told."""
    cluster = Cluster(nodes, pods)
    translator = Translator(cluster)
    translated = [translator.pod(pod) for pod in pods]
    for each in translated:
        if each.unsupported or not same_rule(case, each.request.groups):
            raise Wrong(f"{case}: {each.request.groups} {each.unsupported}")
    return Fleet.from_description(describe(cluster)[0]), [each.request for each in translated]


def one_by_one(engine: Engine, requests: Sequence[PlaceRequest]) -> list[Answer]:
    """Ask for each, and make each answer real before the next is asked."""
    answers = []
    for request in requests:
        answer = engine.place(request, runners_up=0)
        if isinstance(answer, Placement):
            engine.commit(request, answer)
        answers.append(answer)
    return answers


def as_batch(engine: Engine, requests: Sequence[PlaceRequest]) -> list[Answer]:
    """Hand over everything at once; each is placed with those before it in place."""
    return engine.place_batch(requests)


def measure(
    name: str,
    case: Case,
    nodes: Sequence[Object],
    pods: Sequence[Object],
    place: Callable[[Engine, Sequence[PlaceRequest]], list[Answer]],
    rounds: int,
) -> Speed:
    """Place all requests on the empty fleet, some times over, and check every answer."""
    fleet, requests = fleet_and_requests(case, nodes, pods)
    place(Engine(fleet.snapshot()), requests[:_WARM])
    spans: list[Span] = []
    for _ in range(rounds):
        engine = Engine(fleet.snapshot())
        engine.find(requests[0])  # files the hosts, as an engine that runs has long done
        with timed() as span:
            answers = place(engine, requests)
        spans.append(span)
        placed = {each.vm: each.host for each in answers if isinstance(each, Placement)}
        if len(placed) != len(requests):
            raise Wrong(f"{name}: {len(placed)} of {len(requests)} are placed")
        check(name, case, nodes, placed)
    return Speed(
        len(requests) / min(span.wall_s for span in spans),
        1e6 * min(span.cpu_s for span in spans) / len(requests),
    )
