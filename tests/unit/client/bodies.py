"""Bodies as a server sends them, with only what a case cares about said."""

from typing import Any

from roost.wire import bodies as b

GIB = 2**30
NOW = "2026-01-02T03:04:05Z"


def vm(name: str = "web-1", **more: Any) -> b.VMBody:
    fields: dict[str, Any] = {
        "id": f"vm-{name}",
        "name": name,
        "project": "default",
        "state": "running",
        "desired": "running",
        "observed": "running",
        "host": "h1",
        "hypervisor_id": "h1",
        "virtual": True,
        "demand": b.AmountsBody(cpu_milli=2000, memory_bytes=4 * GIB, disk_bytes=20 * GIB),
        "strategy": "least_loaded",
        "priority": 0,
        "restart": "here",
        "on_no_fit": "fail",
        "labels": {},
        "groups": [],
        "generation": 1,
        "observed_generation": 1,
        "created_at": NOW,
    }
    return b.VMBody(**fields | more)


def placement(vm: str = "web-1", host: str = "h1") -> b.PlacementBody:
    one = 10 * 2**30
    return b.PlacementBody(
        vm=vm,
        host=host,
        host_number=0,
        strategy="least_loaded",
        score=one // 2,
        breakdown=[
            b.ScoreTermBody(name="cpu", value=one // 4),
            b.ScoreTermBody(name="memory", value=one // 4),
        ],
        runners_up=[b.RunnerUpBody(host="h2", score=one * 3 // 4)],
    )


def rejection(vm: str = "web-1") -> b.RejectionBody:
    short = {"need_bytes": 16 * GIB, "free_bytes": 12 * GIB, "short_bytes": 4 * GIB}
    shortage = {"resource": "memory", **short}
    fix = {"kind": "uncordon", "host": "h4", "rule": "", "shortages": []}
    return b.RejectionBody(
        vm=vm,
        code="insufficient_resources",
        message=f"VM {vm!r} fits on no host",
        strategy="least_loaded",
        hosts=4,
        reasons=[
            b.ReasonBody(reason="not_open", first=1, total=1),
            b.ReasonBody(reason="memory", first=3, total=3),
        ],
        nearest_miss={"host": "h1", "hosts": 3, "shortages": [shortage]},
        fixes=[fix],
    )


def host(name: str = "h1", **more: Any) -> b.HostBody:
    fields: dict[str, Any] = {
        "name": name,
        "number": 0,
        "health": "online",
        "admin": "open",
        "driver": "virtual",
        "virtual": True,
        "zone": "a",
        "rack": "a-1",
        "site": "",
        "architecture": "x86_64",
        "labels": {"tier": "gold"},
        "taints": [],
        "cpu_milli": b.HostAmounts(capacity=16_000, committed=2000),
        "memory_bytes": b.HostAmounts(capacity=64 * GIB, committed=4 * GIB, used=GIB),
        "disk_bytes": b.HostAmounts(capacity=500 * GIB, committed=20 * GIB),
        "extended": {},
        "devices": [],
        "cells": [],
        "vms": 1,
        "max_vms": None,
        "generation": 1,
        "connected": True,
        "guard": False,
        "fenced": None,
    }
    return b.HostBody(**fields | more)


def project(name: str = "default", vms: int = 1, quota: int | None = None) -> b.ProjectBody:
    return b.ProjectBody(
        name=name,
        cpu_milli=b.LimitBody(used=2000, quota=None),
        memory_bytes=b.LimitBody(used=4 * GIB, quota=64 * GIB),
        disk_bytes=b.LimitBody(used=0, quota=None),
        vms=b.LimitBody(used=vms, quota=quota),
    )


def token(**more: Any) -> b.TokenBody:
    fields: dict[str, Any] = {
        "id": "tok-1",
        "name": "ci",
        "role": "viewer",
        "project": None,
        "created_at": NOW,
        "expires_at": None,
    }
    return b.TokenBody(**fields | more)


def event(seq: int, **more: Any) -> b.EventBody:
    fields: dict[str, Any] = {
        "seq": seq,
        "at": NOW,
        "actor": "token/tok-1",
        "kind": "vm_created",
        "subject": "vm/vm-web-1",
        "project": "default",
        "changes": {"state": "starting"},
    }
    return b.EventBody(**fields | more)
