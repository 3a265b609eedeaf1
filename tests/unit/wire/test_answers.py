"""Answers as bodies, and their JSON."""

import msgspec
import pytest
from msgspec import to_builtins

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
from roost.wire.answers import answer_body, shortage_body
from roost.wire.bodies import ShortageBody


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
    assert to_builtins(answer_body(placement)) == {
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
        "relaxed": [],
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
    found = to_builtins(answer_body(rejection))
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
    cpu = {"resource": "cpu", "need_milli": 2000, "free_milli": 500, "short_milli": 1500}
    licenses = {"resource": "license", "need_count": 2, "free_count": 0, "short_count": 2}
    assert to_builtins(shortage_body(Shortage("cpu", 2000, 500))) == cpu
    assert to_builtins(shortage_body(Shortage("license", 2, 0))) == licenses


@pytest.mark.parametrize("resource", ["cpu", "memory", "license"])
def test_a_shortage_is_read_back_whatever_its_unit(resource: str) -> None:
    sent = msgspec.json.encode(shortage_body(Shortage(resource, 7, 0)))
    found = msgspec.json.decode(sent, type=ShortageBody)
    assert (found.need, found.free, found.short) == (7, 0, 7)


def test_fields_stand_in_the_order_that_is_documented() -> None:
    short = Shortage("disk", 3, 1)
    refused = Rejection(
        vm="v",
        code=RejectionCode.INSUFFICIENT_RESOURCES,
        message="m",
        strategy="s",
        hosts=1,
        nearest_miss=NearestMiss("h", (short,), 1),
        fixes=(Fix(FixKind.FREE, "h", shortages=(short,)),),
        larger_than_any_host=(short,),
    )
    disk = '{"resource":"disk","need_bytes":3,"free_bytes":1,"short_bytes":2}'
    assert msgspec.json.encode(answer_body(refused)).decode() == (
        '{"answer":"rejection","vm":"v","code":"insufficient_resources","message":"m",'
        '"strategy":"s","hosts":1,"reasons":[],'
        f'"nearest_miss":{{"host":"h","hosts":1,"shortages":[{disk}]}},'
        f'"fixes":[{{"kind":"free","host":"h","rule":"","shortages":[{disk}]}}],'
        f'"larger_than_any_host":[{disk}],"preemption":null,"idle":[],"after_moves":null}}'
    )
