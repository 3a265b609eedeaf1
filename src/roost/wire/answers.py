"""Answers of the engine as the bodies of the API: the one outer form that JSON and tables show.

An amount's field ends in `_milli` (cpu), `_bytes` (memory, disk) or `_count` (anything else).
Importing this loads the engine; who only reads answers needs `wire.bodies` alone.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET

from roost.base.errors import NoFit
from roost.model.flow import (
    Answer,
    Placement,
    ReasonCount,
    Rejection,
    RunnerUp,
    ScoreTerm,
    Shortage,
)
from roost.model.outlook import Foreseen, Predicted
from roost.placement.capacity import CapacityAnswer
from roost.placement.explain import Explanation, HostVerdict
from roost.placement.group import GroupAnswer
from roost.placement.rules.refusing import RuleRefusal
from roost.wire.bodies import (
    AnswerBody,
    BatchConflictBody,
    CapacityBody,
    ExplanationBody,
    FixBody,
    ForeseenBody,
    NearestMissBody,
    PlacementBody,
    PredictedBody,
    ReasonBody,
    RejectionBody,
    RestrictionBody,
    RuleRefusalBody,
    RunnerUpBody,
    ScoreTermBody,
    ShortageBody,
    TogetherBody,
    VerdictBody,
)

_UNITS = {"cpu": "milli", "memory": "bytes", "disk": "bytes"}


def answer_body(answer: Answer, number_of: Callable[[int], int] = int) -> AnswerBody:
    """Return a placement or a rejection as a body; `number_of` a fleet's row is that row itself."""
    if isinstance(answer, Placement):
        return placement_body(answer, number_of(answer.host_row))
    return rejection_body(answer)


def placement_body(placement: Placement, number: int) -> PlacementBody:
    """Return a placement as a body, with its host's number."""
    return PlacementBody(
        vm=placement.vm,
        host=placement.host,
        host_number=number,
        strategy=placement.strategy,
        score=placement.score,
        devices=list(placement.devices),
        cells=list(placement.cells),
        breakdown=_terms(placement.breakdown) if placement.breakdown else [],
        runners_up=_runners_up(placement.runners_up) if placement.runners_up else [],
        confidence=placement.confidence,
        cursor=placement.cursor,
        relaxed=list(placement.relaxed),
        foreseen=_foreseen(placement.foreseen) if placement.foreseen is not None else UNSET,
        mix=placement.mix or UNSET,
    )


def _foreseen(foreseen: Foreseen) -> ForeseenBody:
    basis, host = foreseen.basis, foreseen.host
    return ForeseenBody(
        digest=basis.digest,
        quantile_milli=basis.quantile_milli,
        until_s=basis.until_s,
        host=_predicted(host) if host is not None else None,
    )


def _terms(breakdown: Iterable[ScoreTerm]) -> list[ScoreTermBody]:
    return [ScoreTermBody(name=term.name, value=term.value) for term in breakdown]


def _runners_up(found: Iterable[RunnerUp]) -> list[RunnerUpBody]:
    return [RunnerUpBody(host=each.host, score=each.score) for each in found]


def rejection_body(rejection: Rejection) -> RejectionBody:
    """Return a rejection as a body."""
    miss = rejection.nearest_miss
    return RejectionBody(
        vm=rejection.vm,
        code=rejection.code.value,
        message=rejection.message,
        strategy=rejection.strategy,
        hosts=rejection.hosts,
        reasons=reason_bodies(rejection.reasons),
        nearest_miss=None
        if miss is None
        else NearestMissBody(
            host=miss.host, hosts=miss.hosts, shortages=_shortages(miss.shortages)
        ),
        fixes=[
            FixBody(
                kind=fix.kind.value,
                host=fix.host,
                rule=fix.rule,
                shortages=_shortages(fix.shortages),
            )
            for fix in rejection.fixes
        ],
        larger_than_any_host=_shortages(rejection.larger_than_any_host),
    )


def rejection_json(rejection: Rejection) -> dict[str, Any]:
    """Return a rejection as a document, for the details of an error."""
    made: dict[str, Any] = msgspec.to_builtins(rejection_body(rejection))
    return made


#: VMs that a restriction of a batch names.
_MOST_BOUND = 10


def together_body(found: GroupAnswer) -> TogetherBody:
    """Return how a batch was placed, or what is in its way."""
    conflict = None
    if found.conflict is not None:
        conflict = BatchConflictBody(
            restrictions=[
                RestrictionBody(
                    kind=each.kind,
                    name=each.name,
                    vms=list(each.vms[:_MOST_BOUND]),
                    count=len(each.vms),
                )
                for each in found.conflict.restrictions
            ],
            checked=found.conflict.checked,
            smallest=found.conflict.smallest,
        )
    return TogetherBody(how=found.how, proven=found.proven, conflict=conflict)


def no_fit_together(found: GroupAnswer) -> NoFit:
    """Return the error that an atomic batch which does not fit ends with."""
    assert found.rejection is not None
    error = no_fit(found.rejection)
    error.details = {**error.details, "together": msgspec.to_builtins(together_body(found))}
    return error


def no_fit(rejection: Rejection) -> NoFit:
    """Return the error that a request which must not wait ends with."""
    return NoFit(rejection.code.value, rejection.message, rejection_json(rejection))


def explanation_body(
    explanation: Explanation,
    hosts: Collection[str] = (),
    most: int | None = None,
    number_of: Callable[[int], int] = int,
) -> ExplanationBody:
    """Return an explanation as a body: the verdicts on some hosts, or on the first `most`."""
    verdicts = map(explanation.verdict, hosts) if hosts else islice(explanation.verdicts(), most)
    return ExplanationBody(
        answer=answer_body(explanation.answer, number_of),
        hosts=len(explanation),
        fitting=explanation.fitting,
        reasons=reason_bodies(explanation.reasons),
        verdicts=list(map(_verdict, verdicts)),
    )


def capacity_body(answer: CapacityAnswer) -> CapacityBody:
    """Return how many more fit as a body."""
    return CapacityBody(
        answer="capacity",
        count=answer.count,
        survive=answer.survive.label if answer.survive is not None else None,
        losses=answer.losses,
        sampled=answer.sampled,
        blocking=answer.blocking,
        refused=rejection_body(answer.refused) if answer.refused is not None else None,
        stranded=rejection_body(answer.stranded) if answer.stranded is not None else None,
    )


def _verdict(verdict: HostVerdict) -> VerdictBody:
    return VerdictBody(
        host=verdict.host,
        fits=verdict.fits,
        score=verdict.score,
        reasons=[reason.value for reason in verdict.reasons],
        shortages=_shortages(verdict.shortages),
        rules=rule_refusals(verdict.rules),
        predicted=_predicted(verdict.predicted) if verdict.predicted is not None else None,
        ends_s=verdict.ends_s,
    )


def _predicted(predicted: Predicted) -> PredictedBody:
    return PredictedBody(
        cpu_milli=predicted.cpu_milli,
        memory_bytes=predicted.memory_bytes,
        cpu_milli_range=predicted.cpu_range,
        memory_bytes_range=predicted.memory_range,
        as_of_s=predicted.as_of_s,
    )


def rule_refusals(found: Iterable[RuleRefusal]) -> list[RuleRefusalBody]:
    """Return the parts of rules that do not hold on a host."""
    return [
        RuleRefusalBody(rule=each.rule, part=each.part, values=dict(each.values), error=each.error)
        for each in found
    ]


def reason_bodies(counts: Iterable[ReasonCount]) -> list[ReasonBody]:
    """Return how many hosts each reason refused."""
    return [
        ReasonBody(reason=c.reason.value, first=c.first, total=c.total, rule=c.rule, part=c.part)
        for c in counts
    ]


def _shortages(found: Iterable[Shortage]) -> list[ShortageBody]:
    return list(map(shortage_body, found))


def shortage_body(shortage: Shortage) -> ShortageBody:
    """Return how much of one resource is missing, with its unit in the field names."""
    unit = _UNITS.get(shortage.resource, "count")
    return ShortageBody(
        resource=shortage.resource,
        **{
            f"need_{unit}": shortage.need,
            f"free_{unit}": shortage.free,
            f"short_{unit}": shortage.short,
        },
    )
