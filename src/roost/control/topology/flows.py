"""Learn who talks from what agents count: gathered in memory, put into the matrix in time.

    samples.flows --take--> bits by VM and card --learn--> the row `learnt` --follow--> the engine

An agent is believed of VMs that are on its host, in amounts that a card can send, and of nothing
else. It names the far end by the address of its card; whose that is the specs of all VMs say. What
every process has heard is added in its own transaction, so they need no singleton: each hour while
that changes the matrix by a tenth, and every six hours otherwise. A process that dies takes what it
has not added yet along, of what is learnt over days (ADR-0081).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from roost.base.clock import Clock
from roost.base.errors import Unavailable
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.topology.matrix import TrafficMatrix, learn_from
from roost.control.vms.ruling import host_of_claim
from roost.ledger.claims.capacity import RUN
from roost.ledger.store import Store
from roost.model.vm import VMSpec, cards_of
from roost.parts.part import Loop, Part
from roost.topology.learning import Pair, pair_of
from roost.wire.agentlink import FlowInfo

log = logging.getLogger("roost.topology")

#: How often it is learnt, and how old what was learnt gets before it fades without readings.
LEARN_S, FADE_S = 3600.0, 6 * 3600.0
#: Pairs of VM and card that are gathered of one host.
MOST_GATHERED = 1_024
#: The most that is believed of all VMs of a host together; the time that the first message of a
#: host may be about, and any later one.
MOST_MBIT, _FIRST_S, _LONGEST_S = 100_000.0, 60.0, 900.0


class LearntTraffic(Part):
    """Takes flows from agents, and learns from them who talks."""

    def __init__(
        self, store: Store, roster: Roster, matrix: TrafficMatrix, clock: Clock,
        telemetry: Telemetry,
    ) -> None:  # fmt: skip
        self._store, self._roster, self._matrix, self._clock = store, roster, matrix, clock
        self._gathered: dict[int, dict[tuple[str, str], int]] = {}  # bits, by host
        self._heard: dict[int, float] = {}  # by host: when
        self._added_s = clock.monotonic()  # when this process has added what it had heard
        self._left_out = telemetry.counter(
            "roost_flows_left_out",
            "Flows of agents that are not learnt from: of VMs that are elsewhere, or too many.",
        )

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (Loop(self.learn, LEARN_S),)

    def take(self, host: int, flows: Sequence[FlowInfo]) -> None:
        """Gather what VMs of a host have sent; of all together no more than a card can send."""
        entry = self._roster.hosts.get(host)
        if entry is None:
            return
        now = self._clock.monotonic()
        passed_s = min(_LONGEST_S, now - self._heard[host]) if host in self._heard else _FIRST_S
        self._heard[host] = now
        most = int(MOST_MBIT * 1e6 * passed_s)
        gathered = self._gathered.setdefault(host, {})
        told: dict[tuple[str, str], int] = {}
        for flow in flows:
            key = flow.vm, flow.card.lower()
            told[key] = told.get(key, 0) + 8 * flow.sent_bytes
        left_out, in_all = 0, sum(told.values())
        for key, bits in told.items():
            here = host_of_claim(self._roster, f"{key[0]}:{RUN}") is entry
            if not here or (key not in gathered and len(gathered) >= MOST_GATHERED):
                left_out += 1
                continue
            believed = bits if in_all <= most else bits * most // in_all
            gathered[key] = gathered.get(key, 0) + believed
        if left_out:
            self._left_out.inc(left_out)

    async def learn(self) -> None:
        """Put what was gathered into the matrix, or let what is there fade."""
        known = self._roster.hosts
        self._heard = {host: at for host, at in self._heard.items() if host in known}
        old_ms = self._matrix.learnt_ms
        fades = old_ms is not None and self._clock.wall_ms() - old_ms >= 1000 * FADE_S
        gathered, self._gathered = self._gathered, {}
        if not gathered and not fades:
            return
        now_s = self._clock.monotonic()
        # By this process's own time: the row is young as long as any process adds to it.
        due = now_s - self._added_s >= FADE_S
        specs = self._roster.specs.copied()
        sent = await asyncio.to_thread(sent_between, gathered, specs)
        kept = False
        try:
            row = await self._store.write(lambda tx: learn_from(tx, sent, FADE_S, due), "agents")
            kept = row is not None or not sent
            self._added_s = now_s if kept else self._added_s
        except Unavailable as error:
            log.debug("who talks is learnt later: %s", error.message)
        finally:
            if not kept:
                self._give_back(gathered)

    def _give_back(self, gathered: Mapping[int, Mapping[tuple[str, str], int]]) -> None:
        for host, sent in gathered.items():
            into = self._gathered.setdefault(host, {})
            for key, bits in sent.items():
                if key in into or len(into) < MOST_GATHERED:
                    into[key] = into.get(key, 0) + bits


def sent_between(
    gathered: Mapping[int, Mapping[tuple[str, str], int]], specs: Mapping[str, VMSpec]
) -> dict[Pair, int]:
    """Return bits by pair of VMs, both ways together; an address that two VMs have is nobody's."""
    owners: dict[str, str | None] = {}
    for vm, spec in specs.items():
        for card in cards_of(vm, spec.nics):
            owners[card] = None if card in owners else vm
    sent: dict[Pair, int] = {}
    for flows in gathered.values():
        for (vm, card), bits in flows.items():
            other = owners.get(card)
            if other is not None and other != vm:
                pair = pair_of(vm, other)
                sent[pair] = sent.get(pair, 0) + bits
    return sent
