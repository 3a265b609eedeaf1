"""Probes of a world in which the network is measured: what honest agents find, and who orders them.

Agents of a world have no sockets. So a line in front of each honest one says where it is reached
and answers the probes that a plane orders, after the time that they take: always the same, whoever
lies beside them. An operator measures again and again, and knows what must come out.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from roost.sim.actors.rogue import NAME as ROGUE
from roost.sim.ground.lives import Life
from roost.sim.ground.network import Connection, HostTransport, Network
from roost.sim.laws.books import Broken
from roost.wire.agentlink import Hello, ProbeInfo, ProbeOrder, ProbeReply, encode
from roost.wire.topology import MeasurementBody, MeasureTopology

if TYPE_CHECKING:
    from roost.sim.world import World

#: What every honest probe finds: the round trip in ms, the rates out and back in Mbit/s.
_ROUND_TRIP_MS, _OUT_MBIT, _BACK_MBIT = 0.4, 900.0, 910.0
#: Between two looks at a measurement, and between two of them.
_LOOKS_S, _RESTS_S = 1.0, 3.0
_hello = msgspec.json.Decoder(Hello)
_order = msgspec.json.Decoder(ProbeOrder)


def door_of(host: str) -> str:
    """Return where the probe port of an honest host is."""
    return f"10.0.0.{1 + int(host.removeprefix('h'))}:7071"


class ProbedTransport:
    """Implements the agent's `Transport`: connections whose probes are answered on the way."""

    def __init__(self, network: Network, host: str, life: Life) -> None:
        self._inner = HostTransport(network, host, life)
        self._host, self._life = host, life

    async def connect(self, server: str, credential: str) -> "ProbedLink":
        """Connect to a plane."""
        return ProbedLink(await self._inner.connect(server, credential), self._host, self._life)


class ProbedLink:
    """Implements the agent's `Link` around a connection."""

    def __init__(self, inner: Connection, host: str, life: Life) -> None:
        self._inner, self._host, self._life = inner, host, life

    async def send(self, data: bytes) -> None:
        """Send one message; a hello says where probes are taken."""
        if data.startswith(b'{"type":"hello"'):
            hello = _hello.decode(data)
            hello.probe = ProbeInfo(door_of(self._host))
            data = encode(hello)
        await self._inner.send(data)

    async def receive(self) -> bytes:
        """Return the next message that is for the agent."""
        while (data := await self._inner.receive()).startswith(b'{"type":"probe"'):
            self._life.spawn(self._answer(_order.decode(data)))
        return data

    async def _answer(self, order: ProbeOrder) -> None:
        """Let a prober in, or measure: between honest hosts alone there is anything to find."""
        reply = ProbeReply(order.number)
        if order.address:
            await asyncio.sleep(2 * order.seconds)
            reply.code, reply.message = "probe_unreachable", "nobody is there"
            if order.address.startswith("10.0.0."):
                reply = ProbeReply(
                    order.number, _ROUND_TRIP_MS, _ROUND_TRIP_MS, _OUT_MBIT, _BACK_MBIT
                )
        if self._inner.open:
            await self._inner.send(encode(reply))

    async def close(self) -> None:
        """Close the connection."""
        await self._inner.close()


async def measure_for_ever(world: "World") -> None:
    """Measure the network again and again; every measurement ends, and is what it must be."""
    loop = asyncio.get_running_loop()
    while True:
        (process,) = world.planes.values()
        assert process.plane is not None
        assert process.life is not None
        found = await process.life.spawn(process.plane.measuring.begin(MeasureTopology()))
        end = loop.time() + found.most_s + _LOOKS_S
        while found.state == "running" and loop.time() < end:
            await asyncio.sleep(_LOOKS_S)
        beside = sum(ROGUE in (pair.source, pair.dest) for pair in found.pairs)
        world.note("measured" if not beside else "measured.rogue", "", f"{found.done} pairs")
        world.check(partial(check_measured, found))
        await asyncio.sleep(_RESTS_S)


def check_measured(found: MeasurementBody) -> None:
    """Raise Broken when the rogue has a part in what honest hosts have measured."""
    if found.state != "done":
        raise Broken(f"a measurement of {found.most_s:g} s at most is {found.state}")
    truth = "done", _ROUND_TRIP_MS / 2, _OUT_MBIT, _BACK_MBIT
    for pair in found.pairs:
        said = pair.state, pair.latency, pair.out, pair.back
        if ROGUE not in (pair.source, pair.dest) and said != truth:
            raise Broken(f"{pair.source} and {pair.dest} are harmed by a rogue agent: {said}")
