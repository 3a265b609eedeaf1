"""QEMU may say something by itself before it answers the first command."""

import asyncio
import json
from pathlib import Path

import pytest

from roost.agent.drivers.qemu.monitor import SOCKET, Monitor
from roost.hostkit.failures import DriverError

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}}, "capabilities": []}}
EVENT = {"event": "MIGRATION", "timestamp": {"seconds": 1, "microseconds": 0}, "data": {}}


async def connected(folder: Path, forestalled: int) -> int:
    """Connect to a QEMU whose first answers are forestalled; return how often one had to."""
    begun = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        begun += 1

        def say(what: object) -> None:
            writer.write(json.dumps(what).encode() + b"\r\n")

        say(GREETING)
        asked = json.loads(await reader.read(1 << 16))
        if begun <= forestalled:
            say(EVENT)
        say({"return": {}, "id": asked["id"]} if "id" in asked else {"return": {}})
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(talk, folder / SOCKET)
    try:
        monitor = await Monitor.connect(folder)
        assert monitor.is_open
        await monitor.close()
    finally:
        server.close()
    return begun


def test_an_event_before_the_first_answer_only_costs_another_connection(tmp_path: Path) -> None:
    assert asyncio.run(connected(tmp_path, 2)) == 3


def test_one_that_never_answers_rightly_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="cannot be used"):
        asyncio.run(connected(tmp_path, 9))
