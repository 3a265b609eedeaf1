"""Run in a network of its own by test_driver_taps: a VM with a card on a bridge of the host."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from roost.hostkit.failures import DriverError
from roost.wire.agentlink import NicInfo
from tests.guest import boot_info
from tests.integration.qemu.qemu_host import QemuHost, order, says


async def run(*words: str) -> str:
    """Run a program that must succeed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe)
    output, _ = await process.communicate()
    assert process.returncode == 0, words
    return output.decode()


async def main(host: QemuHost) -> None:
    """Talk to a guest through its tap, and see that nothing is left of it."""
    await run("ip", "link", "set", "lo", "up")
    await run("ip", "link", "add", "br-test", "type", "bridge")
    await run("ip", "addr", "add", "10.98.7.1/24", "dev", "br-test")
    await run("ip", "link", "set", "br-test", "up")
    vm = order(
        boot=boot_info("roost.net=10.98.7.2/24"), nics=[NicInfo(mode="tap", bridge="br-test")]
    )
    async with host.opened() as driver:
        with pytest.raises(DriverError, match="lets no VM use bridge 'br-test'"):
            await driver.start(vm)
    counted = ("br-test",) if shutil.which("nft") else ()
    async with host.opened(bridges=("br-test",), count_flows=counted) as driver:
        await driver.start(vm)
        assert await driver.flows() == []  # from now on it is counted, where it can be
        await says(driver, vm.id, "NET 10.98.7.2")
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection("10.98.7.2", 80), timeout=30
        )
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert b"hello from the guest" in await reader.read()
        writer.close()
        await writer.wait_closed()
        sample = next(each for each in await driver.samples() if each.vm == vm.id)
        assert sample.more["net_received_bytes"] > 0
        assert sample.more["net_sent_packets"] > 0
        if counted:
            bridge = (await run("ip", "-br", "link", "show", "br-test")).split()[2]
            sent = {each.card: each.sent_bytes for each in await driver.flows()}
            assert 0 < sent[bridge] <= sample.more["net_sent_bytes"] * 2
        await driver.destroy(vm.id)
        assert "rt" not in await run("ip", "-br", "link", "show", "type", "tun")
    if counted:
        assert await run("nft", "list", "tables") == ""


if __name__ == "__main__":
    made = QemuHost(Path(sys.argv[1]))
    try:
        asyncio.run(main(made))
    finally:
        made.end_all()
