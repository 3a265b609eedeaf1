"""The words that describe a host, read and written.

cpu= memory= disk=        totals; `?` when nobody could read one (unknown is full)
x.NAME=                   total of an extended resource, in whole units
reserve.R= ratio.R=       what the host keeps of resource R; how far R is overcommitted
zone= rack= site=         fault domains
labels=K=V,K              taints=K=V:no-place,K:prefer-not
arch= driver= capabilities=A,B
gpus=4xA100:80GiB         count x model, memory, and `whole` when it cannot be shared
cells=2x8:16GiB           count x cpu and memory of a NUMA cell
max-vms=  health=online|suspect|offline  admin=open|cordoned|draining|maintenance
"""

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

from roost.base.errors import InvalidRequest
from roost.base.units import (
    exact_bytes,
    exact_cpu,
    parse_bytes,
    parse_count,
    parse_cpu,
)
from roost.model.hosts import (
    Admin,
    Cell,
    Device,
    Health,
    HostSpec,
    Resource,
    Taint,
    TaintEffect,
)
from roost.model.resources import BASE_RESOURCES
from roost.wire.text.settings import Settings, Vocabulary
from roost.wire.text.words import Piece, choose, escape

T = TypeVar("T")

EXTENDED = "x."

HOST_WORDS = Vocabulary(
    "a host",
    single=(
        *BASE_RESOURCES,
        "zone",
        "rack",
        "site",
        "arch",
        "driver",
        "max-vms",
        "health",
        "admin",
    ),
    lists=("labels", "taints", "capabilities", "gpus", "cells"),
    prefixes=(EXTENDED, "reserve.", "ratio."),
)

_HEALTH = {health.label: health for health in Health}
_ADMIN = {admin.label: admin for admin in Admin}
_EFFECTS = {effect.value: effect for effect in TaintEffect}
_REPEATED = re.compile(r"([0-9]{1,4})x(?=.)", re.DOTALL)


def read_amount(resource: str) -> Callable[[str, str], int]:
    """Return the function that reads an amount of this resource."""
    return {"cpu": parse_cpu, "memory": parse_bytes, "disk": parse_bytes}.get(resource, parse_count)


def write_amount(resource: str, amount: int) -> str:
    """Write an amount of a resource so that reading gives back the same number."""
    if resource == "cpu":
        return exact_cpu(amount)
    return exact_bytes(amount) if resource in BASE_RESOURCES else str(amount)


def resource_word(resource: str) -> str:
    """Return the word of a resource: its name, with "x." before an extended one."""
    return resource if resource in BASE_RESOURCES else f"{EXTENDED}{escape(resource)}"


def extended_names(settings: Settings) -> list[str]:
    """Return the extended resources that were given, in order."""
    names = [key.removeprefix(EXTENDED) for key in settings if key.startswith(EXTENDED)]
    for name in names:
        if name in BASE_RESOURCES:
            raise settings.word(EXTENDED + name).error(
                f"extended resource {name!r} has the name of a base resource", f"Maybe {name}=?"
            )
    return names


def read_host(settings: Settings) -> HostSpec:
    """Return the host that these words describe; its name is the settings' owner."""
    for resource in ("cpu", "memory"):
        if resource not in settings:
            raise settings.owner.error(
                f"host {settings.owner.text!r} has no {resource}",
                f"Maybe {resource}=? when nobody could read it.",
            )
    extended = tuple((name, _resource(name, settings)) for name in extended_names(settings))
    _check_modifiers(settings)
    try:
        return HostSpec(
            name=settings.owner.text,
            cpu=_resource("cpu", settings),
            memory=_resource("memory", settings),
            disk=_resource("disk", settings),
            extended=extended,
            zone=settings.text("zone", ""),
            rack=settings.text("rack", ""),
            site=settings.text("site", ""),
            labels=_labels(settings),
            taints=tuple(_taint(item) for item in settings.items("taints")),
            architecture=settings.text("arch", "x86_64"),
            driver=settings.text("driver", "qemu"),
            capabilities=settings.texts("capabilities"),
            devices=tuple(_repeated(settings.items("gpus"), _device)),
            cells=tuple(_repeated(settings.items("cells"), _cell)),
            max_vms=settings.convert("max-vms", parse_count, None),
            health=settings.choose("health", _HEALTH, Health.ONLINE),
            admin=settings.choose("admin", _ADMIN, Admin.OPEN),
        )
    except InvalidRequest as error:
        raise _placed(error, settings.owner) from error


def _placed(error: InvalidRequest, owner: Piece) -> InvalidRequest:
    """Return the error itself when it knows its place, or one that points at the owner."""
    known = owner.place is None or "column" in error.details
    return error if known else owner.error(error.message, error.hint)


def _word(resource: str) -> str:
    return resource if resource in BASE_RESOURCES else EXTENDED + resource


def _resource(name: str, settings: Settings) -> Resource:
    word = _word(name)
    read = read_amount(name)
    total = settings.value(word)
    if total is None:
        amount: int | None = 0
    else:
        amount = None if total.masked == "?" else total.convert(read, word)
    reserve = settings.convert(f"reserve.{word}", read, 0)
    ratio = settings.convert(f"ratio.{word}", _ratio, 1000)
    try:
        return Resource(amount, reserve, ratio)
    except InvalidRequest as error:
        at = next((k for k in (f"ratio.{word}", f"reserve.{word}") if k in settings), word)
        raise settings.word(at).error(f"{word}: {error.message}") from error


def _ratio(text: str, what: str) -> int:
    if text.endswith("m"):
        raise InvalidRequest(f"{what} {text!r} takes no unit")
    return parse_cpu(text, what)


def _check_modifiers(settings: Settings) -> None:
    """Refuse a reserve or ratio of a resource that the host does not have."""
    for key in settings:
        prefix, dot, word = key.partition(".")
        if dot and prefix in ("reserve", "ratio") and word not in settings and word != "disk":
            raise settings.word(key).error(
                f"{key!r} speaks of {word!r}, which this host does not have",
                f"Maybe {prefix}.memory or {prefix}.x.NAME?",
            )


def _labels(settings: Settings) -> tuple[tuple[str, str], ...]:
    labels: dict[str, str] = {}
    for item in settings.items("labels"):
        key, value = item.partition("=")
        if key.text in labels:
            raise key.error(f"label {key.text!r} is given twice")
        labels[key.text] = value.text if value is not None else ""
    return tuple(labels.items())


def _taint(item: Piece) -> Taint:
    rest, effect = item.rpartition(":")
    key, value = rest.partition("=")
    return Taint(
        key.text,
        value.text if value is not None else "",
        choose(effect, "taint effect", _EFFECTS) if effect is not None else TaintEffect.NO_PLACE,
    )


def _repeated(items: Sequence[Piece], read: Callable[[Piece], T]) -> list[T]:
    """Read items of which each may begin with a count, as in 4xA100."""
    result: list[T] = []
    for item in items:
        match = _REPEATED.match(item.masked)
        count = int(match[1]) if match else 1
        if count == 0:
            raise item.error(f"{item.text!r} has a count of zero")
        result += [read(item[match.end() if match else 0 :])] * count
    return result


def _device(item: Piece) -> Device:
    model, *rest = item.split(":")
    memory_bytes, shareable = 0, True
    for part in rest:
        if part.masked == "whole":
            shareable = False
        else:
            memory_bytes = part.convert(parse_bytes, "gpu memory")
    return Device(model.text, memory_bytes, shareable)


def _cell(item: Piece) -> Cell:
    cpu, memory = item.partition(":")
    if memory is None:
        raise item.error(f"cell {item.text!r} has no memory", "Maybe 8:16GiB?")
    return Cell(cpu.convert(parse_cpu, "cell cpu"), memory.convert(parse_bytes, "cell memory"))


def write_host(host: HostSpec) -> list[str]:
    """Return the words from which `read_host` makes this host again."""
    words: list[str] = []
    for name, resource in host.resources():
        word = resource_word(name)
        if resource.total != 0 or name != "disk":
            total = "?" if resource.total is None else write_amount(name, resource.total)
            words.append(f"{word}={total}")
        if resource.reserve:
            words.append(f"reserve.{word}={write_amount(name, resource.reserve)}")
        if resource.ratio_milli != 1000:
            words.append(f"ratio.{word}={resource.ratio_milli / 1000:.3f}".rstrip("0").rstrip("."))
    labels = [
        f"{escape(key)}={escape(value)}" if value else escape(key) for key, value in host.labels
    ]
    lists = {
        "labels": labels,
        "taints": [_write_taint(taint) for taint in host.taints],
        "capabilities": [escape(name) for name in host.capabilities],
        "gpus": [f"{n}x{text}" for text, n in _runs(map(_write_device, host.devices))],
        "cells": [f"{n}x{text}" for text, n in _runs(map(_write_cell, host.cells))],
    }
    single = {
        "zone": (host.zone, ""),
        "rack": (host.rack, ""),
        "site": (host.site, ""),
        "arch": (host.architecture, "x86_64"),
        "driver": (host.driver, "qemu"),
        "health": (host.health.label, Health.ONLINE.label),
        "admin": (host.admin.label, Admin.OPEN.label),
    }
    words += [f"{key}={escape(text)}" for key, (text, usual) in single.items() if text != usual]
    words += [f"{key}={','.join(items)}" for key, items in lists.items() if items]
    if host.max_vms is not None:
        words.append(f"max-vms={host.max_vms}")
    return words


def _runs(texts: "map[str]") -> list[tuple[str, int]]:
    """Return neighbours that are equal once, with their count, at most 9999 in a run."""
    runs: list[tuple[str, int]] = []
    for text, same in groupby(texts):
        left = len(list(same))
        while left:
            runs.append((text, min(left, 9999)))
            left -= runs[-1][1]
    return runs


def _write_taint(taint: Taint) -> str:
    value = f"={escape(taint.value)}" if taint.value else ""
    return f"{escape(taint.key)}{value}:{taint.effect.value}"


def _write_device(device: Device) -> str:
    memory = f":{exact_bytes(device.memory_bytes)}" if device.memory_bytes else ""
    return f"{escape(device.model)}{memory}{'' if device.shareable else ':whole'}"


def _write_cell(cell: Cell) -> str:
    return f"{exact_cpu(cell.cpu_milli)}:{exact_bytes(cell.memory_bytes)}"
