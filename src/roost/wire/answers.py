"""Answers of the engine as plain dicts for JSON: stable field names, whole numbers, units in names.

An amount's field ends in `_milli` (cpu), `_bytes` (memory, disk) or `_count` (anything else).
Every answer says in `answer` which kind it is.
"""

from collections.abc import Collection

from roost.model.flow import (
    Answer,
    Fix,
    NearestMiss,
    Placement,
    ReasonCount,
    Rejection,
    Shortage,
)
from roost.placement.capacity import CapacityAnswer
from roost.placement.explain import Explanation, HostVerdict

JSON = dict[str, object]

_UNITS = {"cpu": "milli", "memory": "bytes", "disk": "bytes"}


def answer_json(answer: Answer) -> JSON:
    """Return a placement or a rejection as a dict."""
    return placement_json(answer) if isinstance(answer, Placement) else rejection_json(answer)


def placement_json(placement: Placement) -> JSON:
    """Return a placement as a dict."""
    return {
        "answer": "placement",
        "vm": placement.vm,
        "host": placement.host,
        "host_number": placement.host_row,
        "strategy": placement.strategy,
        "score": placement.score,
        "devices": list(placement.devices),
        "cells": list(placement.cells),
        "breakdown": [{"name": term.name, "value": term.value} for term in placement.breakdown],
        "runners_up": [{"host": r.host, "score": r.score} for r in placement.runners_up],
        "confidence": placement.confidence,
        "cursor": placement.cursor,
    }


def rejection_json(rejection: Rejection) -> JSON:
    """Return a rejection as a dict."""
    miss = rejection.nearest_miss
    return {
        "answer": "rejection",
        "vm": rejection.vm,
        "code": rejection.code.value,
        "message": rejection.message,
        "strategy": rejection.strategy,
        "hosts": rejection.hosts,
        "reasons": [reason_json(count) for count in rejection.reasons],
        "nearest_miss": miss_json(miss) if miss is not None else None,
        "fixes": [fix_json(fix) for fix in rejection.fixes],
        "larger_than_any_host": [shortage_json(s) for s in rejection.larger_than_any_host],
    }


def reason_json(count: ReasonCount) -> JSON:
    """Return how many hosts a reason refused."""
    return {"reason": count.reason.value, "first": count.first, "total": count.total}


def shortage_json(shortage: Shortage) -> JSON:
    """Return how much of one resource is missing, with its unit in the field names."""
    unit = _UNITS.get(shortage.resource, "count")
    return {
        "resource": shortage.resource,
        f"need_{unit}": shortage.need,
        f"free_{unit}": shortage.free,
        f"short_{unit}": shortage.short,
    }


def miss_json(miss: NearestMiss) -> JSON:
    """Return the nearest miss as a dict."""
    return {
        "host": miss.host,
        "hosts": miss.hosts,
        "shortages": [shortage_json(shortage) for shortage in miss.shortages],
    }


def fix_json(fix: Fix) -> JSON:
    """Return one change after which the request fits."""
    return {
        "kind": fix.kind.value,
        "host": fix.host,
        "rule": fix.rule,
        "shortages": [shortage_json(shortage) for shortage in fix.shortages],
    }


def explanation_json(explanation: Explanation, hosts: Collection[str] = ()) -> JSON:
    """Return an explanation as a dict, with the verdicts on some hosts or on all."""
    verdicts = map(explanation.verdict, hosts) if hosts else explanation.verdicts()
    return {
        "answer": answer_json(explanation.answer),
        "hosts": len(explanation),
        "fitting": explanation.fitting,
        "reasons": [reason_json(count) for count in explanation.reasons],
        "verdicts": [verdict_json(verdict) for verdict in verdicts],
    }


def verdict_json(verdict: HostVerdict) -> JSON:
    """Return what the filters said of one host."""
    return {
        "host": verdict.host,
        "fits": verdict.fits,
        "score": verdict.score,
        "reasons": [reason.value for reason in verdict.reasons],
        "shortages": [shortage_json(shortage) for shortage in verdict.shortages],
    }


def capacity_json(answer: CapacityAnswer) -> JSON:
    """Return how many more fit as a dict."""
    return {
        "answer": "capacity",
        "count": answer.count,
        "survive": answer.survive.label if answer.survive is not None else None,
        "losses": answer.losses,
        "sampled": answer.sampled,
        "blocking": answer.blocking,
        "refused": rejection_json(answer.refused) if answer.refused is not None else None,
    }
