"""The traffic matrix: pairs of VMs that talk, from three sources, each a row with a generation.

The topology's own file, pairs that were declared one by one, and what was learnt from agents
(`flows.py`). A row keeps beside each name the id that it meant when it was written; a VM that comes
later under that name is meant from then on. Learnt pairs name VMs by id, and what is declared of
two VMs wins over them. The engine is told through the roster's talkers.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, select

from roost.base.errors import InvalidRequest
from roost.base.timestamps import timestamp
from roost.control.memory.roster import Roster
from roost.control.memory.talkers import GROUP
from roost.ledger.schema.changes import TRAFFIC, Changes
from roost.ledger.schema.rows import TrafficRow
from roost.ledger.schema.tables import traffic, vms
from roost.ledger.writes.statements import Plus, find_rows
from roost.ledger.writes.transaction import Tx, row_json
from roost.topology.distances import kilobits
from roost.topology.learning import Pair, learn, pair_of, unlike
from roost.topology.network import Traffic, checked
from roost.wire.topology import (
    MOST_PAIRS,
    MOST_SHOWN,
    KeptPair,
    PairBody,
    Said,
    SetTraffic,
    TrafficBody,
    TrafficMatrixBody,
)

log = logging.getLogger("roost.topology")

#: Who says that VMs talk.
TOPOLOGY: Said = "topology"
DECLARED: Said = "declared"
LEARNT: Said = "learnt"
DECLARATIONS: tuple[Said, ...] = (TOPOLOGY, DECLARED)
SOURCES: tuple[Said, ...] = (*DECLARATIONS, LEARNT)

_decode = msgspec.json.Decoder(list[KeptPair]).decode
#: By project, for the index of names begins with it: by name alone every VM would be looked at.
_NAMED = select(vms.c.id, vms.c.name).where(
    vms.c.project == bindparam("project"), vms.c.name.in_(bindparam("names", expanding=True))
)
_BY_ID = select(vms.c.id, vms.c.project, vms.c.name).where(
    vms.c.id.in_(bindparam("ids", expanding=True))
)
#: Names that one query asks for.
_PIECE = 500
#: How unlike the one before a matrix that was learnt must be, to be written before that is old.
WORTH_AN_EVENT = 0.1


class TrafficMatrix:
    """Who talks with whom, as this process knows it."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._rows: dict[str, TrafficRow] = {}
        self._pairs: dict[str, list[KeptPair]] = {}
        self.changes = 0  # grows with every change

    def load(self, connection: Connection) -> None:
        """Load the matrix, and what its names mean now."""
        self._rows = {row["id"]: TrafficRow(**row) for row in find_rows(connection, traffic, {})}
        self._pairs = {name: _read(row) for name, row in self._rows.items()}
        refs = {ref for pairs in self._pairs.values() for pair in pairs for ref in (pair.a, pair.b)}
        self._tell(meant(connection, refs))

    def follow(self, changes: Changes) -> None:
        """Take over a source that has changed."""
        changed = changes.of(TRAFFIC)
        if not changed:
            return
        ids = dict(self._roster.talkers.ids)
        for name, row in changed.items():
            if row is None:
                self._rows.pop(name, None)
                self._pairs.pop(name, None)
                continue
            self._rows[name], self._pairs[name] = row, _read(row)
            for pair in self._pairs[name]:
                ends = ((pair.a, pair.a_id), (pair.b, pair.b_id))
                ids |= {ref: vm for ref, vm in ends if vm}
        self._tell(ids)

    def _tell(self, ids: Mapping[str, str]) -> None:
        self.changes += 1
        self._roster.talkers.set_pairs(self._said(*DECLARATIONS), ids, self._said(LEARNT))

    def _said(self, *names: Said) -> Iterator[tuple[str, str, int]]:
        for name in names:
            for pair in self._pairs.get(name, ()):
                yield pair.a, pair.b, kilobits(pair.mbit)

    # Asking

    def body(self) -> TrafficMatrixBody:
        """Return the matrix, the most talkative pairs first."""
        talkers, row = self._roster.talkers, self._rows.get(DECLARED)
        alone = {(a, b) for a, b, _ in talkers.undeclared()}
        found = [
            PairBody(
                source=pair.a,
                dest=pair.b,
                rate=pair.mbit,
                said=name,
                known=bool(talkers.vms_of(pair.a) and talkers.vms_of(pair.b)),
                counts=name != LEARNT or pair_of(pair.a, pair.b) in alone,
            )
            for name in SOURCES
            for pair in self._pairs.get(name, ())
        ]
        found.sort(key=lambda each: (-each.rate, each.source, each.dest))
        return TrafficMatrixBody(
            pairs=found[:MOST_SHOWN],
            pairs_in_all=len(found),
            generation=0 if row is None else row.generation,
            changed_at=None if row is None else timestamp(row.changed_ms),
            changed_by="" if row is None else row.changed_by,
        )

    def pairs(self) -> list[TrafficBody]:
        """Return the pairs that were declared, as the topology shows them."""
        found = [pair for name in DECLARATIONS for pair in self._pairs.get(name, ())]
        found.sort(key=lambda pair: (-pair.mbit, pair.a, pair.b))
        return [TrafficBody(source=p.a, dest=p.b, rate=p.mbit) for p in found[:MOST_SHOWN]]

    @property
    def learnt(self) -> int:
        """Return how many pairs were learnt."""
        return len(self._pairs.get(LEARNT, ()))

    @property
    def learnt_ms(self) -> int | None:
        """Return when it was learnt for the last time; None where nothing is known by it."""
        return self._rows[LEARNT].changed_ms if self.learnt else None

    def described(self) -> list[TrafficBody]:
        """Return the pairs that the topology itself says, as its file has them."""
        pairs = self._pairs.get(TOPOLOGY, ())
        return [TrafficBody(source=pair.a, dest=pair.b, rate=pair.mbit) for pair in pairs]

    # Changing

    def declare(self, tx: Tx, body: SetTraffic, actor: str) -> TrafficRow:
        """Add, change and take back declared pairs, whoever declares others at the same time."""
        check_pairs(body.pairs)
        found = tx.find(traffic, id=DECLARED, lock=True)
        kept = {}
        if found is not None and not body.whole:
            kept = {_key(p.a, p.b): p for p in _read(TrafficRow(**found))}
        refs = {ref for pair in body.pairs for ref in (pair.source, pair.dest)}
        ids = meant(tx.connection, refs)
        for pair in body.pairs:
            key = _key(pair.source, pair.dest)
            kept.pop(key, None)
            if pair.rate > 0:
                kept[key] = _kept(pair, ids)
        if len(kept) > MOST_PAIRS:
            raise InvalidRequest(
                f"{len(kept)} pairs would be declared; at most {MOST_PAIRS} are kept",
                hint="Maybe declare those that talk the most.",
            )
        return write(tx, DECLARED, list(kept.values()), actor)

    def describe(self, tx: Tx, pairs: Sequence[TrafficBody], actor: str) -> TrafficRow | None:
        """Replace the pairs of the topology's own file; None where it never had any."""
        check_pairs(pairs)
        if not pairs and tx.find(traffic, id=TOPOLOGY) is None:
            return None
        refs = {ref for pair in pairs for ref in (pair.source, pair.dest)}
        ids = meant(tx.connection, refs)
        return write(tx, TOPOLOGY, [_kept(pair, ids) for pair in pairs if pair.rate > 0], actor)


def write(tx: Tx, name: Said, pairs: list[KeptPair], actor: str) -> TrafficRow:
    """Write one source, with the generation after the one it had."""
    document = row_json(pairs)
    fields: dict[str, Any] = {
        "document": document, "changed_ms": tx.at_ms, "changed_by": actor,
    }  # fmt: skip
    found = tx.change(traffic, {"id": name}, generation=Plus(1), **fields)
    if found is None:
        found = tx.insert(traffic, {"id": name, "generation": 1, **fields})
    row = TrafficRow(**found)
    tx.event(
        "traffic.set", "topology", {"traffic": {name: row}}, note=f"{name}: {len(pairs)} pairs"
    )
    return row


def learn_from(
    tx: Tx, sent_bits: Mapping[Pair, int], least_passed_s: float, due: bool = False
) -> TrafficRow | None:
    """Add what VMs have sent to what was learnt, by whichever process, as much as that has faded.

    Where nothing was sent it only fades. None: it was written less than `least_passed_s` ago, and
    what it would be now is too much like it to fill the ledger with another event of all pairs,
    unless it is `due`.
    """
    found = tx.find(traffic, id=LEARNT, lock=True)
    row = None if found is None else TrafficRow(**found)
    passed_s = 0.0 if row is None else (tx.at_ms - row.changed_ms) / 1000
    young = passed_s < least_passed_s
    if not sent_bits and young:
        return None
    known = {} if row is None else {pair_of(pair.a, pair.b): pair.mbit for pair in _read(row)}
    rates = learn(known, sent_bits, passed_s)
    if young and not due and known and unlike(known, rates) < WORTH_AN_EVENT:
        return None
    there = names_of(tx.connection, {vm for pair in rates for vm in pair})
    pairs = [
        KeptPair(a, b, round(rate, 6))
        for (a, b), rate in rates.items()
        if a in there and b in there
    ]
    return None if row is None and not pairs else write(tx, LEARNT, pairs, "agents")


def check_pairs(pairs: Sequence[TrafficBody]) -> None:
    """Refuse pairs that make no sense, with what is wrong."""
    checked((), (), [Traffic(each.source, each.dest, each.rate) for each in pairs])
    seen: set[tuple[str, str]] = set()
    for each in pairs:
        for ref in (each.source, each.dest):
            name = ref.removeprefix(GROUP)
            if not name or (
                "/" not in name and (ref.startswith(GROUP) or not ref.startswith("vm-"))
            ):
                raise InvalidRequest(
                    f"{ref!r} names no VM",
                    hint="Maybe PROJECT/NAME, a VM's id, or group:PROJECT/NAME.",
                )
        if each.source == each.dest and not each.source.startswith(GROUP):
            raise InvalidRequest(f"{each.source!r} cannot talk with itself", vm=each.source)
        if (key := _key(each.source, each.dest)) in seen:
            raise InvalidRequest(f"{each.source!r} and {each.dest!r} are there twice")
        seen.add(key)


def meant(connection: Connection, refs: Iterable[str]) -> dict[str, str]:
    """Return the VMs that names mean, as far as there are any."""
    names: defaultdict[str, list[str]] = defaultdict(list)  # by project
    for ref in sorted({ref for ref in refs if "/" in ref and not ref.startswith(GROUP)}):
        project, _, name = ref.partition("/")
        names[project].append(name)
    found: dict[str, str] = {}
    for project, wanted in names.items():
        for start in range(0, len(wanted), _PIECE):
            given = {"project": project, "names": wanted[start : start + _PIECE]}
            for vm, name in connection.execute(_NAMED, given):
                found[f"{project}/{name}"] = vm
    return found


def names_of(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    """Return PROJECT/NAME of those VMs that are there."""
    wanted = sorted(ids)
    found: dict[str, str] = {}
    for start in range(0, len(wanted), _PIECE):
        for vm, project, name in connection.execute(
            _BY_ID, {"ids": wanted[start : start + _PIECE]}
        ):
            found[vm] = f"{project}/{name}"
    return found


def _key(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a <= b else (b, a)


def _kept(pair: TrafficBody, ids: Mapping[str, str]) -> KeptPair:
    a, b = pair.source, pair.dest
    return KeptPair(a, b, pair.rate, ids.get(a, ""), ids.get(b, ""))


def _read(row: TrafficRow) -> list[KeptPair]:
    try:
        return _decode(row.document)
    except msgspec.DecodeError as error:
        log.warning("the traffic that was %s cannot be read: %s", row.id, error)
        return []
