"""Answers of a server as the types that the engine itself returns, for one set of tables.

Bodies carry amounts with their unit in the field's name (`short_bytes`); the model has them by
resource. Only what tables show is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from roost.base.errors import NotFound
from roost.model.flow import (
    Answer,
    Fix,
    FixKind,
    NearestMiss,
    Placement,
    PlaceRequest,
    ReasonCount,
    Rejection,
    RejectionCode,
    RunnerUp,
    ScoreTerm,
    Shortage,
)
from roost.model.hosts import Scope
from roost.model.reasons import Reason
from roost.wire.bodies import (
    CapacityBody,
    ExplanationBody,
    PlacementBody,
    ReasonBody,
    RejectionBody,
    VerdictBody,
)


def read_answer(body: PlacementBody | RejectionBody) -> Answer:
    """Return a placement or a rejection."""
    return read_placement(body) if isinstance(body, PlacementBody) else _rejection(body)


def read_placement(body: PlacementBody) -> Placement:
    """Return a placement."""
    return Placement(
        vm=body.vm,
        host=body.host,
        host_row=body.host_number,
        strategy=body.strategy,
        score=body.score,
        devices=tuple(body.devices),
        cells=tuple(body.cells),
        breakdown=tuple(ScoreTerm(term.name, term.value) for term in body.breakdown),
        runners_up=tuple(RunnerUp(each.host, each.score) for each in body.runners_up),
        confidence=body.confidence,
        cursor=body.cursor,
    )


def read_rejection(found: RejectionBody | Mapping[str, Any]) -> Rejection:
    """Return a rejection from its body, or from the details of an error."""
    if isinstance(found, RejectionBody):
        return _rejection(found)
    return _rejection(msgspec.convert(found, RejectionBody))


def _rejection(body: RejectionBody) -> Rejection:
    miss = body.nearest_miss
    return Rejection(
        vm=body.vm,
        code=RejectionCode(body.code),
        message=body.message,
        strategy=body.strategy,
        hosts=body.hosts,
        reasons=_reasons(body.reasons),
        nearest_miss=None
        if miss is None
        else NearestMiss(miss["host"], _shortages(miss["shortages"]), miss["hosts"]),
        fixes=tuple(
            Fix(FixKind(each["kind"]), each["host"], each["rule"], _shortages(each["shortages"]))
            for each in body.fixes
        ),
        larger_than_any_host=_shortages(body.larger_than_any_host),
    )


def _reasons(bodies: Sequence[ReasonBody]) -> tuple[ReasonCount, ...]:
    return tuple(ReasonCount(Reason(each.reason), each.first, each.total) for each in bodies)


def _shortages(found: Sequence[Mapping[str, Any]]) -> tuple[Shortage, ...]:
    return tuple(map(_shortage, found))


def _shortage(found: Mapping[str, Any]) -> Shortage:
    amounts = {key.partition("_")[0]: value for key, value in found.items() if key != "resource"}
    return Shortage(found["resource"], amounts["need"], amounts["free"])


@dataclass(frozen=True, slots=True)
class ServerVerdict:
    """What one host says, as a server told it."""

    host: str
    fits: bool
    score: int | None
    reasons: tuple[Reason, ...]
    shortages: tuple[Shortage, ...]


@dataclass(frozen=True, slots=True)
class ServerExplanation:
    """An explanation, as a server told it."""

    request: PlaceRequest
    answer: Answer
    reasons: tuple[ReasonCount, ...]
    fitting: int
    hosts: int
    told: tuple[ServerVerdict, ...]

    def __len__(self) -> int:
        return self.hosts

    def verdicts(self) -> Iterator[ServerVerdict]:
        """Yield the verdicts in the order they came."""
        return iter(self.told)

    def verdict(self, host: str) -> ServerVerdict:
        """Return one host's verdict."""
        for each in self.told:
            if each.host == host:
                return each
        raise NotFound(f"no host {host!r} in the server's answer", host=host)


def read_explanation(body: ExplanationBody, request: PlaceRequest) -> ServerExplanation:
    """Return an explanation of a request."""
    return ServerExplanation(
        request=request,
        answer=read_answer(body.answer),
        reasons=_reasons(body.reasons),
        fitting=body.fitting,
        hosts=body.hosts,
        told=tuple(map(_verdict, body.verdicts)),
    )


def _verdict(body: VerdictBody) -> ServerVerdict:
    reasons = tuple(map(Reason, body.reasons))
    return ServerVerdict(body.host, body.fits, body.score, reasons, _shortages(body.shortages))


@dataclass(frozen=True, slots=True)
class ServerCount:
    """How many more fit, as a server told it."""

    count: int
    survive: Scope | None
    losses: int
    sampled: bool
    blocking: str
    refused: Rejection | None


def read_capacity(body: CapacityBody) -> ServerCount:
    """Return how many more fit."""
    return ServerCount(
        count=body.count,
        survive=None if body.survive is None else Scope[body.survive.upper()],
        losses=body.losses,
        sampled=body.sampled,
        blocking=body.blocking,
        refused=None if body.refused is None else _rejection(body.refused),
    )
