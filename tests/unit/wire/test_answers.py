"""Answers as plain dicts."""

import json

from roost.base.units import GIB
from roost.model.flow import (
    Fix,
    FixKind,
    NearestMiss,
    Placement,
    ReasonCount,
    Rejection,
    RejectionCode,
    RunnerUp,
    ScoreTerm,
    Shortage,
)
from roost.model.reasons import Reason
from roost.wire.answers import answer_json, shortage_json


def test_placement_has_stable_fields() -> None:
    placement = Placement(
        vm="v",
        host="h1",
        host_row=3,
        strategy="least_loaded",
        score=17,
        devices=(0, 2),
        cells=(1,),
        breakdown=(ScoreTerm("cpu", 7), ScoreTerm("memory", 10)),
        runners_up=(RunnerUp("h2", 20),),
        confidence=0.25,
        cursor=4,
    )
    assert json.loads(json.dumps(answer_json(placement))) == {
        "answer": "placement",
        "vm": "v",
        "host": "h1",
        "host_number": 3,
        "strategy": "least_loaded",
        "score": 17,
        "devices": [0, 2],
        "cells": [1],
        "breakdown": [{"name": "cpu", "value": 7}, {"name": "memory", "value": 10}],
        "runners_up": [{"host": "h2", "score": 20}],
        "confidence": 0.25,
        "cursor": 4,
    }


def test_rejection_names_units_in_its_fields() -> None:
    short = Shortage("memory", 8 * GIB, 6 * GIB)
    rejection = Rejection(
        vm="v",
        code=RejectionCode.INSUFFICIENT_RESOURCES,
        message="no host fits",
        strategy="best_fit",
        hosts=14,
        reasons=(ReasonCount(Reason.MEMORY, 14, 14),),
        nearest_miss=NearestMiss("h1", (short,), 14),
        fixes=(Fix(FixKind.FREE, "h1", shortages=(short,)), Fix(FixKind.LIFT_RULE, "h2", "zone")),
    )
    found = json.loads(json.dumps(answer_json(rejection)))
    amounts = {
        "resource": "memory",
        "need_bytes": 8 * GIB,
        "free_bytes": 6 * GIB,
        "short_bytes": 2 * GIB,
    }
    assert found["answer"] == "rejection"
    assert found["code"] == "insufficient_resources"
    assert found["reasons"] == [{"reason": "memory", "first": 14, "total": 14}]
    assert found["nearest_miss"] == {"host": "h1", "hosts": 14, "shortages": [amounts]}
    assert found["fixes"] == [
        {"kind": "free", "host": "h1", "rule": "", "shortages": [amounts]},
        {"kind": "lift_rule", "host": "h2", "rule": "zone", "shortages": []},
    ]
    assert found["larger_than_any_host"] == []


def test_cpu_is_in_thousandths_and_extended_resources_are_counted() -> None:
    assert shortage_json(Shortage("cpu", 2000, 500))["short_milli"] == 1500
    assert shortage_json(Shortage("license", 2, 0))["short_count"] == 2
