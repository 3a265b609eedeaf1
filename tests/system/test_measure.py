"""The network is measured for real: through shaped links, and by a whole fleet of agents."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.agent.talk.probing import ProbeSettings, Probing
from roost.base.clock import RealClock
from roost.wire.agentlink import ProbeOrder, ProbeReply
from tests.system import networks
from tests.system.processes import Site

WORD = "7" * 40
MIB = 2**20
#: What is sent and taken of a shaped link is less than its rate: headers of packets count too.
LEAST, MOST = 0.75, 1.1
#: What else runs on a machine takes from a probe: that none of so many is near says something.
TRIES = 3

TARGET = """
import asyncio, sys
from roost.agent.talk.probing import ProbeSettings, Probing
from roost.base.clock import RealClock
from roost.wire.agentlink import ProbeOrder

async def main():
    probing = Probing(ProbeSettings(sys.argv[1], 7071), RealClock())
    print((await probing.info()).address, flush=True)
    assert not (await probing.answer(ProbeOrder(1, sys.argv[2], "", 20, 64 << 20, 2.0))).code
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def why_not() -> str:
    return networks.why_not() or ("" if shutil.which("tc") else "not installed: tc (iproute2)")


@contextmanager
def target(made: networks.Networks) -> Iterator[str]:
    """Let a probe port listen in the second network; yields its address."""
    words = [*made.in_second, sys.executable, "-c", TARGET, networks.ADDRESSES[1], WORD]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as there:
        assert there.stdout is not None
        address = there.stdout.readline().strip()
        assert there.stdout.readline().strip() == "ready"
        try:
            yield address
        finally:
            there.communicate("", timeout=30)


async def measured(address: str) -> ProbeReply:
    probing = Probing(ProbeSettings(networks.ADDRESSES[0], 0), RealClock())
    try:
        await probing.info()
        return await probing.answer(ProbeOrder(1, WORD, address, 20, 64 * MIB, 2.0))
    finally:
        await probing.close()


@pytest.mark.skipif(bool(why_not()), reason=f"networks cannot be made here: {why_not()}")
@pytest.mark.parametrize(("out", "back"), [(80, 40), (20, 160)])
def test_a_shaped_link_is_measured_both_ways(tmp_path: Path, out: int, back: int) -> None:
    with networks.two_networks(tmp_path) as made:
        for words, cable, mbit in ((), "cable", out), (made.in_second, "cable2", back):
            shape = ["root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "50ms"]
            subprocess.run([*words, "tc", "qdisc", "add", "dev", cable, *shape], check=True)
        seen = []
        for _ in range(TRIES):
            with target(made) as address:
                seen.append(asyncio.run(measured(address)))
            if is_near(seen[-1], out, back):
                return
    pytest.fail(f"{out} and {back} Mbit/s were measured as {seen}")


def is_near(found: ProbeReply, out: int, back: int) -> bool:
    """Say whether a reply is what the links were shaped to."""
    assert (found.code, found.message) == ("", "")
    assert found.round_trip_ms is not None
    assert found.out_mbit is not None
    assert found.back_mbit is not None
    ways = ((found.out_mbit, out), (found.back_mbit, back))
    near = all(LEAST * mbit < measured < MOST * mbit for measured, mbit in ways)
    return near and 0 < found.round_trip_ms < 50


def test_a_fleet_measures_itself_and_the_proposal_is_applied(site: Site, tmp_path: Path) -> None:
    server = site.serve()
    site.hosts("m", server, count=3, probe_port=0, rack="r1", zone="z")
    site.hosts("off", server)
    with site.client(server) as client:
        file = tmp_path / "proposal.yaml"
        planned = site.roost("topology", "measure", "--dry-run")
        assert "takes" in planned.stdout
        done = site.roost(
            "topology",
            "measure",
            "--hosts",
            "m-01,m-02,m-03",
            "--size",
            "4MiB",
            "--file",
            str(file),
        )
        assert done.returncode == 0, done.stderr
        assert client.get_topology().source == "labels"
        applied = site.roost("topology", "apply", str(file))
        assert applied.returncode == 0, applied.stderr
        found = client.get_topology()
        assert (found.source, found.missing) == ("declared", ["off"])
        assert {node.id for node in found.nodes if node.type == "host"} == {"m-01", "m-02", "m-03"}
        assert all(link.bandwidth > 0 and link.latency > 0 for link in found.links)
