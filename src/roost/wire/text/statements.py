"""The statements of a fleet file: each adds to a fleet that is checked as a whole at the end.

`fleetfile` documents the format. A VM may stand above its host, so a name that is not known yet
is looked up again when the file has ended.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from roost.base.units import parse_count
from roost.model.constraints import Constraints
from roost.model.description import FleetDescription, HoldSpec, PlacedVM, UsedSpec
from roost.model.groups import GroupSpec
from roost.model.hosts import HostSpec
from roost.model.resources import BASE_RESOURCES, Demand
from roost.wire.text.hostwords import EXTENDED, HOST_WORDS, extended_names, read_amount, read_host
from roost.wire.text.ranges import expand
from roost.wire.text.requestwords import (
    HOLD_WORDS,
    VM_WORDS,
    read_constraints,
    read_demand,
    read_group,
)
from roost.wire.text.settings import Settings, Vocabulary
from roost.wire.text.words import Piece, choose, suggest

T = TypeVar("T")

_USED_WORDS = Vocabulary("measured use", BASE_RESOURCES, (), (EXTENDED,))


class Statements:
    """What the statements read so far describe."""

    def __init__(self) -> None:
        self._table: dict[str, Callable[[Piece, list[Piece]], None]] = {
            "defaults": self._defaults,
            "host": self._host,
            "hosts": self._host,
            "group": self._group,
            "vm": self._vm,
            "vms": self._vm,
            "hold": self._hold,
            "used": self._used,
        }
        self._host_defaults: Settings | None = None
        self._vm_defaults: Settings | None = None
        self._hosts: dict[str, HostSpec] = {}
        self._groups: dict[str, GroupSpec] = {}
        self._vms: dict[str, PlacedVM] = {}
        self._holds: dict[str, HoldSpec] = {}
        self._measured: dict[str, UsedSpec] = {}
        self._lines: dict[tuple[str, str], int] = {}
        self._later: list[Callable[[], object]] = []
        # Most VMs of a fleet ask for one of a few flavors in the same words: read those once.
        self._flavors: dict[tuple[str, ...], tuple[Demand, Constraints, tuple[str, ...]]] = {}

    def add(self, words: list[Piece]) -> None:
        """Take in one statement."""
        choose(words[0], "statement", self._table)(words[0], words[1:])

    def finish(self) -> FleetDescription:
        """Look up the names that were not known yet, and return the whole."""
        for check in self._later:
            check()
        return FleetDescription(
            hosts=tuple(sorted(self._hosts.values(), key=lambda host: host.name)),
            groups=tuple(self._groups.values()),
            vms=tuple(self._vms.values()),
            holds=tuple(self._holds.values()),
            used=tuple(self._measured.values()),
        )

    def _defaults(self, statement: Piece, words: list[Piece]) -> None:
        kind = "hosts"
        if words and "=" not in words[0].masked:
            kind = choose(words.pop(0), "kind of defaults", {"hosts": "hosts", "vms": "vms"})
        if kind == "hosts":
            settings = Settings.read(statement, words, HOST_WORDS)
            self._host_defaults = settings.over(self._host_defaults)
        else:
            settings = Settings.read(statement, words, VM_WORDS)
            self._vm_defaults = settings.over(self._vm_defaults)
            self._flavors.clear()

    def _host(self, statement: Piece, words: list[Piece]) -> None:
        name, *rest = _named(statement, words)
        host = read_host(Settings.read(name, rest, HOST_WORDS).over(self._host_defaults))
        for each in expand(name) if statement.text == "hosts" else [name.text]:
            self._new("host", each, name, self._hosts)
            self._hosts[each] = replace(host, name=each)

    def _group(self, statement: Piece, words: list[Piece]) -> None:
        group = read_group(_named(statement, words))
        self._new("group", group.name, words[0], self._groups)
        self._groups[group.name] = group

    def _vm(self, statement: Piece, words: list[Piece]) -> None:
        name, host, rest = _on(statement, words)
        many = statement.text == "vms"
        hosts = expand(host) if many else [host.text]
        flavor = tuple(word.chars for word in rest if isinstance(word.chars, str))
        devices: tuple[int, ...] = ()
        cells: tuple[int, ...] = ()
        if flavor in self._flavors and len(flavor) == len(rest) and not many:
            demand, constraints, groups = self._flavors[flavor]
            self._soon(lambda: _look_up("host", host, host.text, self._hosts), host.text)
        else:
            settings = Settings.read(name, rest, VM_WORDS).over(self._vm_defaults)
            demand, constraints = read_demand(settings, "vm"), read_constraints(settings)
            groups = settings.texts("group")
            devices, cells = _positions(settings, "devices"), _positions(settings, "cells")
            self._soon(lambda: self._check_vm(settings, host, hosts), *hosts)
            if len(flavor) == len(rest) and not (devices or cells) and {*groups} <= {*self._groups}:
                self._flavors[flavor] = demand, constraints, groups
        for number, each in enumerate(expand(name) if many else [name.text]):
            self._new("vm", each, name, self._vms)
            self._vms[each] = PlacedVM(
                each, hosts[number % len(hosts)], demand, constraints, groups, devices, cells
            )

    def _check_vm(self, settings: Settings, host: Piece, hosts: list[str]) -> None:
        for group in settings.items("group"):
            _look_up("group", group, group.text, self._groups)
        for each in hosts:
            spec = _look_up("host", host, each, self._hosts)
            for key, count in (("devices", len(spec.devices)), ("cells", len(spec.cells))):
                for item in settings.items(key):
                    if item.convert(parse_count, key) >= count:
                        raise item.error(
                            f"{key} {item.text!r}: host {each!r} has {count} of them, "
                            "counted from 0"
                        )

    def _hold(self, statement: Piece, words: list[Piece]) -> None:
        name, host, rest = _on(statement, words)
        self._new("hold", name.text, name, self._holds)
        demand = read_demand(Settings.read(name, rest, HOLD_WORDS), "hold")
        self._holds[name.text] = HoldSpec(name.text, host.text, demand)
        self._soon(lambda: _look_up("host", host, host.text, self._hosts), host.text)

    def _used(self, statement: Piece, words: list[Piece]) -> None:
        host, *rest = _named(statement, words)
        self._new("measured use of host", host.text, host, self._measured)
        settings = Settings.read(host, rest, _USED_WORDS)
        extended_names(settings)
        amounts = []
        for key in settings:
            resource = key.removeprefix(EXTENDED)
            amounts.append((resource, settings.convert(key, read_amount(resource), 0)))
        self._measured[host.text] = UsedSpec(host.text, tuple(amounts))
        self._soon(lambda: _look_up("host", host, host.text, self._hosts), host.text)

    def _soon(self, check: Callable[[], object], *hosts: str) -> None:
        """Check at once when the hosts are known, else when the file has ended."""
        if all(host in self._hosts for host in hosts):
            check()
        else:
            self._later.append(check)

    def _new(self, kind: str, name: str, at: Piece, known: Mapping[str, object]) -> None:
        if name in known:
            raise at.error(f"{kind} {name!r} is already on line {self._lines[kind, name]}")
        self._lines[kind, name] = at.place.line if at.place else 0


def _named(statement: Piece, words: list[Piece]) -> list[Piece]:
    """Return the words of a statement that begins with a name."""
    if not words or not words[0].text:
        raise (words[0] if words else statement).error(f"{statement.text} needs a name")
    if "=" in words[0].masked:
        raise words[0].error(
            f"{statement.text} needs a name before {words[0].text!r}",
            f"Maybe {statement.text} NAME {words[0].text}?",
        )
    return words


def _on(statement: Piece, words: list[Piece]) -> tuple[Piece, Piece, list[Piece]]:
    """Return name, host and the other words of a statement such as `vm NAME on HOST ...`."""
    name, *rest = _named(statement, words)
    if len(rest) < 2 or rest[0].masked != "on":
        raise (rest[0] if rest else name).error(
            f"{statement.text} {name.text!r} needs a host",
            f"Maybe {statement.text} {name.text} on HOST?",
        )
    return name, rest[1], rest[2:]


def _positions(settings: Settings, key: str) -> tuple[int, ...]:
    return tuple(item.convert(parse_count, key) for item in settings.items(key))


def _look_up(kind: str, at: Piece, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        # The closest of very many names takes long to find and helps little.
        hint = suggest(name, known) if 0 < len(known) <= 1000 else None
        raise at.error(f"unknown {kind} {name!r}", hint)
    return known[name]
