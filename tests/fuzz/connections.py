"""Whole connections of an agent that says anything, on a real plane and a real SQLite database.

Beside them an honest host lives with its VM. Nothing may be raised that nobody handles, and in the
end the honest host has its VM, a new one can be created, and a fresh process loads the ledger.
"""

import asyncio
import logging
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, get_args

import msgspec

from roost.testing.agent import inventory
from roost.wire.agentlink import FromAgent
from tests.fuzz.messages import Tally, Writer
from tests.integration.control.rawagent import connect, hello
from tests.integration.control.rig import Rig, rig_on

#: Messages of one connection, at most; and of all between two looks at the honest host.
_OF_ONE, _BETWEEN_LOOKS = 30, 2000


def fuzz_connections(seed: int, count: int) -> Tally:
    """Send messages over connections until so many were sent; raises whatever nobody handled."""
    log = logging.getLogger("roost")
    level = log.level
    log.setLevel(logging.CRITICAL)  # every message is refused for good reason
    try:
        with TemporaryDirectory() as folder:
            return asyncio.run(_fuzz(seed, count, f"sqlite:///{Path(folder) / 'roost.db'}"))
    finally:
        log.setLevel(level)


async def _fuzz(seed: int, count: int, url: str) -> Tally:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unhandled.append(what))
    random, tally = Random(seed), Tally()
    writer = Writer(random, get_args(FromAgent))
    async with rig_on(url) as rig:
        await rig.host("good")
        await rig.running("web")
        while tally.messages < count:
            await _converse(rig, writer, random, tally)
            if unhandled:
                raise AssertionError(f"nobody handled {unhandled[0]} (seed {seed})")
            if tally.messages % _BETWEEN_LOOKS < _OF_ONE:
                await _look(rig)
        await rig.restart()
        for agent in rig.agents.values():
            agent.connect(rig.plane)
        await rig.settle()
        await rig.running("last", constraints={"hosts": ["good"]})
    return tally


async def _converse(rig: Rig, writer: Writer, random: Random, tally: Tally) -> None:
    link, session = connect(rig, "h0")
    if random.random() < 0.8:  # else it says hello as it likes, or not at all
        found = msgspec.to_builtins(inventory(0, 0))
        session.received(hello("h0", found, conversation=tally.messages))
        await rig.plane.agents.settle()
    for _ in range(random.randrange(1, _OF_ONE)):
        session.received(writer.write())
        tally.messages += 1
        if link.closed is not None:
            tally.refused += 1
            break
    rig.clock.move(random.random())
    await rig.hear()
    session.closed()


async def _look(rig: Rig) -> None:
    for agent in rig.agents.values():
        agent.heartbeat()
    await rig.pass_by(4.0)
    assert await rig.state("web") == ("running", "good")
