"""A rogue agent: it has the credential of one host, `rogue`, and says whatever comes to its mind.

It speaks of other hosts' VMs with any state and generation (half of the time the true one, as a spy
would know it), and of VMs that execute nowhere: that are stopped, wait for a host, or are deleted.
It invents points of the ledger, answers roll calls with lies, says hello for other hosts, registers
with nonsense, counts what other hosts' VMs send to each other, tells of probes that nobody ordered,
and sends what is no message at all. It is cordoned before it begins, and has no room, so
that no VM is its own: what executes nowhere can be claimed by any host that has room for it
(docs/limits.md). In the end it is started anew as an honest one, for a host that never answers is
for an operator to declare dead.

Nothing else goes wrong in its world, so no other host may lose its lease or its health, and no VM
may go anywhere unasked, nor lose its host (`check_unharmed`). Nothing may be learnt of who talks
(`what_is_learnt`), as honest hosts of a world count nothing. All other laws hold too.

What it says of traffic and probes is drawn from a stream of its own and rides on messages that it
sends anyhow, so that all else in a world is as it was before the rogue spoke of them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, get_args

import msgspec
from sqlalchemy import Connection

from roost.control.topology.matrix import LEARNT
from roost.hostkit.talk.link import LinkLost
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import traffic
from roost.ledger.writes.statements import find_rows
from roost.model.states import Seen
from roost.model.vm import mac_of
from roost.sim.ground.lives import Life
from roost.sim.ground.network import Connection as Link
from roost.sim.ground.network import HostTransport, Network
from roost.sim.laws.books import Broken
from roost.wire.agentlink import PROTOCOL, CopyState

NAME = "rogue"
#: Events that a rogue must not bring about on another host, or of any VM.
HARMS = frozenset(
    {"host.suspect", "host.offline", "host.fenced", "host.removed", "vm.recovered", "vm.vanished"}
    | {"vm.crashed", "vm.refused"}
)
_SEEN: tuple[str, ...] = get_args(Seen)
_COPIES: tuple[str, ...] = get_args(CopyState)
_NOTHING = r"\"total\":0"
_AMOUNTS = ("cpu_milli", "memory_bytes", "disk_bytes")
#: Numbers of probes that it answers unasked: those of the first measurements.
_PROBES = 64
_GENERATIONS = (0, 1, 2, 3, 5, 9, 2**20, 2**26, 2**40, 2**62, 2**62 + 1, 2**70, -1)


def check_unharmed(
    events: Sequence[Event], home_of: Callable[[str], str], before: Mapping[str, str]
) -> None:
    """Raise Broken when a commit does to another host or a VM what nobody asked for.

    `before`: where the VMs of these events had their homes. Of a VM that had none anybody may say
    that it is gone: it may have been placed since a copy of the ledger.
    """
    for event in events:
        kind, _, name = event.subject.partition("/")
        harmed = event.kind in HARMS and name != NAME
        if event.kind == "host.registered" and name != NAME:
            harmed = _NOTHING in event.changes  # only the rogue says that a host has nothing
        if event.kind in ("vm.not_adopted", "vm.vanished"):
            harmed = home_of(name) != before[name]
        if harmed or (kind == "vm" and home_of(name) == NAME):
            raise Broken(f"{event.subject} is harmed by a rogue agent: {event.kind} {event.note}")


def what_is_learnt(connection: Connection) -> str:
    """Return the pairs of VMs that are believed to talk because agents have counted it."""
    found = find_rows(connection, traffic, {"id": LEARNT})
    return "".join(str(row["document"]) for row in found)


class Rogue:
    """The rogue, from its first hello to its last word."""

    def __init__(
        self,
        network: Network,
        random: Random,
        talk: Random,
        servers: tuple[str, ...],
        hosts: Sequence[str],
        measured: bool,
        vms: Callable[[], Mapping[str, int]],
    ) -> None:
        self._network, self._random = network, random
        self._talk = talk  # of what it says of traffic and probes
        self._measured = measured  # it answers probes of other hosts as well
        self._servers, self._hosts, self._vms = servers, hosts, vms
        self._known: dict[str, int] = {}  # every VM that there ever was, as it was last
        self._digest = ""
        self._graves: dict[str, dict[str, Any]] = {}  # what it is told to destroy
        self.wild = False
        self._life = Life(NAME)

    def start(self) -> None:
        """Begin to speak."""
        self._life.spawn(self._run())

    def end(self) -> None:
        """End its process."""
        self._life.end()

    async def _run(self) -> None:
        transport = HostTransport(self._network, NAME, self._life)
        turn = 0
        while True:
            turn += 1
            try:
                link = await transport.connect(self._servers[turn % len(self._servers)], "")
                await self._speak(link, turn)
            except LinkLost:
                await asyncio.sleep(0.5 + self._random.random())

    async def _speak(self, link: Link, turn: int) -> None:
        hello = self._hello(turn)
        await link.send(msgspec.json.encode(self._with_talk(hello) if self.wild else hello))
        hearing = self._life.spawn(self._hear(link))
        number, wild = 0, self.wild
        try:
            while not hearing.done() and wild == self.wild:
                number += 1
                beat = {"type": "heartbeat", "number": number, "digest": self._digest}
                if self.wild:
                    await link.send(self._anything(number))
                    if self._measured:
                        await link.send(self._probed(self._talk.randrange(_PROBES)))
                    await asyncio.sleep(self._random.expovariate(4.0))
                else:
                    await link.send(msgspec.json.encode(beat))
                    gone = [grave | {"seen": "absent"} for grave in self._graves.values()]
                    await link.send(msgspec.json.encode({"type": "report", "vms": gone}))
                    await asyncio.sleep(1.0)
        finally:
            hearing.cancel()
            await link.close()

    async def _hear(self, link: Link) -> None:
        while True:
            message = msgspec.json.decode(await link.receive())
            if message["type"] in ("desired", "delta"):
                self._digest = message["digest"]
                graves = {each["id"]: each for each in message.get("tombstones", [])}
                self._graves = graves if message["type"] == "desired" else self._graves | graves
            elif message["type"] == "roll_call":
                said = self._copies() if self.wild else []
                answer = {"type": "present", "digest": self._digest, "copies": said}
                await link.send(msgspec.json.encode(answer))
            elif message["type"] == "probe" and self._talk.random() < 0.7:
                await link.send(self._probed(message["number"]))

    # What it says

    def _hello(self, turn: int) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "type": "hello", "protocol": PROTOCOL, "host": NAME, "instance": f"life{turn}",
            "version": "0", "digest": self._digest, "conversation": turn,
            "inventory": {name: {"total": 0} for name in _AMOUNTS},
        }  # fmt: skip
        if not self.wild:
            return plain
        random = self._random
        wild: dict[str, Callable[[], Any]] = {
            "host": lambda: random.choice(self._hosts),
            "instance": lambda: f"i{random.randrange(9)}",
            "inventory": lambda: plain["inventory"] | self._inventory(),
            "vms": self._seen,
            "held": self._held,
            "guard_stop_s": lambda: random.choice((0, 1, 120, 1e9, -1)),
            "heard": lambda: {"seq": random.choice((0, 7, 10**6, 2**62)), "tx": "invented"},
            "conversation": lambda: random.choice(_GENERATIONS),
        }
        chosen = random.sample(sorted(wild), random.randrange(len(wild)))
        return plain | {name: wild[name]() for name in chosen}

    def _inventory(self) -> dict[str, Any]:
        random, many = self._random, self._random.choice((1, 17, 62, 63, 300))
        at = random.randrange(10**6)
        return random.choice(
            (
                {"devices": [{"model": f"m{at}.{n}"} for n in range(many)]},
                {"devices": [{"model": "m", "memory_bytes": random.choice(_GENERATIONS)}]},
                {"cells": [{"cpu_milli": random.choice(_GENERATIONS), "memory_bytes": 0}] * 2},
                {"extended": {f"r{at}.{n}": {"total": 1} for n in range(many)}},
                {"labels": {f"l{n}": str(at) for n in range(many)}},
                {"taints": [{"key": "k", "effect": random.choice(("no-place", "explode"))}]},
                {"max_vms": random.choice(_GENERATIONS), "zone": f"z{at}"},
            )
        )

    def _some_vms(self) -> list[tuple[str, int]]:
        self._known |= self._vms()
        known = [*sorted(self._known.items()), ("vm-invented", 1)]
        return self._random.sample(known, self._random.randrange(len(known) + 1))

    def _generation(self, true: int) -> int:
        random = self._random
        return true if random.random() < 0.5 else random.choice(_GENERATIONS)

    def _seen(self) -> list[dict[str, Any]]:
        random = self._random
        return [
            {"id": vm, "generation": self._generation(true), "seen": random.choice(_SEEN),
             "progress": {"downtime_ms": 5}}
            for vm, true in self._some_vms()
        ]  # fmt: skip

    def _held(self) -> list[dict[str, Any]]:
        return [{"id": vm, "generation": self._generation(true)} for vm, true in self._some_vms()]

    def _copies(self) -> list[dict[str, Any]]:
        random = self._random
        generations = _GENERATIONS[:7] if random.random() < 0.7 else _GENERATIONS
        return [
            {"id": vm, "generation": random.choice(generations), "is": random.choice(_COPIES)}
            for vm, _ in self._some_vms()
        ]

    def _anything(self, number: int) -> bytes:
        random = self._random
        said: dict[str, Any] = random.choice(
            (
                {"type": "heartbeat", "number": number, "digest": self._digest},
                {"type": "heartbeat", "number": random.choice(_GENERATIONS), "digest": "0"},
                {"type": "report", "vms": self._seen(), "held": self._held(), "full": True},
                {"type": "report", "vms": self._seen()},
                {"type": "present", "digest": self._digest, "copies": self._copies()},
                {"type": "samples", "samples": [{"vm": "", "at_ms": 2**62, "cpu_milli": 1,
                                                 "memory_bytes": 2**48}]},
                {"type": "told", "number": number, "text": "x"},
                self._hello(number),
                {"type": random.choice(("welcome", "hello", "", "?"))},
            )
        )  # fmt: skip
        if random.random() < 0.05:
            data = msgspec.json.encode(said)
            at = random.randrange(len(data))
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        return msgspec.json.encode(self._with_talk(said))

    # What it says of traffic and probes

    def _with_talk(self, said: dict[str, Any]) -> dict[str, Any]:
        """Let a message tell of traffic or of a probe as well, if it is of such a kind."""
        if said["type"] == "hello" and "host" in said:
            return said | self._probe_door()
        if said["type"] == "samples":
            return said | {"flows": self._flows()}
        if said["type"] == "told" and self._talk.random() < 0.5:
            return self._figures(said["number"])
        return said

    def _probe_door(self) -> dict[str, Any]:
        talk = self._talk
        where = ["127.0.0.1:1", "[::1]:65535", "10.0.0.1:7071"]  # the last is another host's
        if self._measured:
            return {"probe": {"address": talk.choice(where)}}
        where += ["", "10.0.0.1:99999", "nobody:7", "x" * 1024]
        door = {"address": talk.choice(where), "why": talk.choice(("", "because"))}
        return {"probe": door} if talk.random() < 0.5 else {}

    def _flows(self) -> list[dict[str, Any]]:
        """Count what VMs have sent to each other's cards, and to none."""
        talk, known = self._talk, [*sorted(self._vms()), "vm-invented"]
        return [
            {"vm": talk.choice(known),
             "card": talk.choice((mac_of(talk.choice(known), 0), "ff:ff:ff:ff:ff:ff", "?")),
             "sent_bytes": talk.choice((0, 1, 10**6, 10**12, 2**62, 2**62 + 1, -1))}
            for _ in range(talk.choice((0, 1, 3, 30)))
        ]  # fmt: skip

    def _probed(self, number: int) -> bytes:
        return msgspec.json.encode(self._figures(number))

    def _figures(self, number: int) -> dict[str, Any]:
        talk = self._talk
        rates = (None, 0.001, 1.0, 1e9)
        return {"type": "probed", "number": number,
                "round_trip_ms": talk.choice((None, 0.0, 0.1, 1e6)),
                "median_ms": talk.choice((None, 0.0, 5.0, 1e6)),
                "out_mbit": talk.choice(rates), "back_mbit": talk.choice(rates),
                "code": talk.choice(("", "probe_failed"))}  # fmt: skip
