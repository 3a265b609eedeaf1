"""Import of hosts, and of the VMs on them, from CSV files with a header.

Columns have the names of the fleet file's words: `name,cpu,memory,disk,zone,rack,...` for hosts,
`name,host,cpu,memory,...` for VMs; an empty cell is a word that is not given. Groups that VMs name
need a rule, which a CSV file cannot state: use a fleet file for those.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.units import parse_count
from roost.model.description import FleetDescription, PlacedVM
from roost.model.hosts import HostSpec
from roost.wire.text.fleetfile import read_text
from roost.wire.text.hostwords import HOST_WORDS, read_host
from roost.wire.text.requestwords import VM_WORDS, read_constraints, read_demand
from roost.wire.text.settings import Settings, Vocabulary
from roost.wire.text.words import Piece, Place, literal, suggest

_HOST_COLUMNS = ("name",)
_VM_COLUMNS = ("name", "host")


def parse(
    hosts: str, vms: str | None = None, file: str = "<hosts>", vms_file: str = "<vms>"
) -> FleetDescription:
    """Return the fleet that one or two CSV texts describe."""
    known: dict[str, HostSpec] = {}
    for row in _rows(hosts, file, _HOST_COLUMNS, HOST_WORDS):
        _refuse_repeated("host", row.name, known)
        known[row.name.text] = read_host(row.settings)
    placed: dict[str, PlacedVM] = {}
    for row in _rows(vms or "", vms_file, _VM_COLUMNS, VM_WORDS):
        _refuse_repeated("vm", row.name, placed)
        placed[row.name.text] = _vm(row, known)
    return FleetDescription(
        hosts=tuple(sorted(known.values(), key=lambda host: host.name)),
        vms=tuple(placed.values()),
    )


def load(hosts: Path | str, vms: Path | str | None = None) -> FleetDescription:
    """Read a CSV file of hosts and, when given, one of VMs."""
    return parse(
        read_text(hosts), read_text(vms) if vms is not None else None, str(hosts), str(vms)
    )


@dataclass(slots=True)
class _Row:
    name: Piece
    settings: Settings
    fixed: dict[str, Piece] = field(default_factory=dict)


def _vm(row: _Row, hosts: dict[str, HostSpec]) -> PlacedVM:
    host = row.fixed["host"]
    if host.text not in hosts:
        raise host.error(f"unknown host {host.text!r}", suggest(host.text, hosts))
    for group in row.settings.items("group"):
        raise group.error(f"group {group.text!r} has no rule", "Maybe use a fleet file for groups.")
    positions = {
        key: tuple(item.convert(parse_count, key) for item in row.settings.items(key))
        for key in ("devices", "cells")
    }
    return PlacedVM(
        name=row.name.text,
        host=host.text,
        demand=read_demand(row.settings, "vm"),
        constraints=read_constraints(row.settings),
        devices=positions["devices"],
        cells=positions["cells"],
    )


def _refuse_repeated(kind: str, name: Piece, known: Mapping[str, object]) -> None:
    if name.text in known:
        raise name.error(f"{kind} {name.text!r} is listed twice")


def _rows(text: str, file: str, fixed: tuple[str, ...], vocabulary: Vocabulary) -> Iterator[_Row]:
    """Yield the rows below the header, with the fixed columns apart from the words."""
    records = _records(text.removeprefix("\ufeff"), file)
    header = next(records, None)
    if header is None:
        return
    names = [cell.strip() for cell in header]
    for name in names:
        if name.text not in fixed:
            vocabulary.check(name)
    for column in fixed:
        if column not in [name.text for name in names]:
            raise names[0].error(f"there is no column {column!r}", f"Maybe {column},cpu,memory,...")
    for cells in records:
        if len(cells) != len(names):
            raise cells[-1].error(f"{len(cells)} cells under {len(names)} columns")
        by_name: dict[str, Piece] = {}
        words: list[Piece] = []
        for name, cell in zip(names, (cell.strip() for cell in cells), strict=True):
            if name.text in fixed:
                if not cell:
                    raise cell.error(f"{name.text} is empty")
                by_name[name.text] = cell
            elif cell:
                words.append(_joined(name, cell))
        yield _Row(by_name["name"], Settings.read(by_name["name"], words, vocabulary), by_name)


def _joined(name: Piece, cell: Piece) -> Piece:
    """Return "name=cell" as one word that points at the cell."""
    start = cell.columns[0]
    before = f"{name.text}="
    return Piece(
        (*before, *cell.chars),
        before + cell.masked,
        (*(start for _ in before), *cell.columns),
        cell.place,
    )


def _records(text: str, file: str) -> Iterator[list[Piece]]:
    """Yield the cells of each record; a quoted cell may hold commas and doubled quotes."""
    for number, line in enumerate(text.split("\n"), start=1):
        content, place = line.removesuffix("\r"), Place(file, number)
        if not content.strip() or content.lstrip().startswith("#"):
            continue
        cells: list[Piece] = []
        at = 0
        while True:
            start = at
            if content[at : at + 1] == '"':
                body, at = _quoted(content, at, place)
                cells.append(literal(body, place, start + 2))
                if content[at : at + 1] not in ("", ","):
                    raise literal("", place, at + 1).error("text after a closing quote")
            else:
                end = content.find(",", at)
                at = end if end >= 0 else len(content)
                cells.append(literal(content[start:at], place, start + 1))
            if at >= len(content):
                break
            at += 1
        yield cells


def _quoted(content: str, at: int, place: Place) -> tuple[str, int]:
    """Return the text of a quoted cell and where it ends."""
    body = ""
    start = at
    while True:
        end = content.find('"', at + 1)
        if end < 0:
            raise literal("", place, start + 1).error("a quote is never closed on this line")
        body += content[at + 1 : end]
        if content[end + 1 : end + 2] != '"':
            return body, end + 1
        body += '"'
        at = end + 1
