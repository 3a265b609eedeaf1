"""Tap devices: a VM's card on a bridge of the host. Made before QEMU starts, removed with the VM.

A tap is named for the VM's id and the card's number, so that making it twice is making it once and
a new agent finds it again. It takes iproute2 and the right to change the network.
"""

import asyncio
from collections.abc import Collection
from hashlib import blake2b

from roost.base import private
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM


def tap_names(vm: DesiredVM) -> tuple[str, ...]:
    """Return the taps of a VM, one for each card of mode tap."""
    digest = blake2b(vm.id.encode(), digest_size=5).hexdigest()
    return tuple(f"rt{digest}-{n}" for n, nic in enumerate(vm.nics) if nic.mode == "tap")


def taps_on(vm: DesiredVM, bridges: Collection[str]) -> list[str]:
    """Return the taps of a VM that are on some bridges."""
    cards = [nic for nic in vm.nics if nic.mode == "tap"]
    return [name for name, nic in zip(tap_names(vm), cards, strict=True) if nic.bridge in bridges]


async def open_taps(vm: DesiredVM, allowed: Collection[str]) -> tuple[str, ...]:
    """Make the taps of a VM, each up and on its bridge, which must be one of those allowed."""
    names = tap_names(vm)
    bridges = [nic.bridge for nic in vm.nics if nic.mode == "tap"]
    for bridge in bridges:
        if bridge not in allowed:
            named = f"bridge {bridge!r}" if bridge else "a tap without a bridge"
            raise DriverError(
                "permanent",
                "bridge_refused",
                f"this host lets no VM use {named} (roost agent --bridge)",
            )
    for name, bridge in zip(names, bridges, strict=True):
        if not await _ip("link", "show", "dev", name, may_fail=True):
            await _ip("tuntap", "add", "dev", name, "mode", "tap")
        await _ip("link", "set", "dev", name, "master", bridge)
        await _ip("link", "set", "dev", name, "up")
    return names


async def close_taps(vm: DesiredVM) -> None:
    """Remove the taps of a VM; those that are gone already are no error."""
    for name in tap_names(vm):
        await _ip("link", "del", "dev", name, may_fail=True)


async def _ip(*arguments: str, may_fail: bool = False) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            "ip",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=private.plain_environment(),
        )
    except OSError as error:
        raise DriverError("permanent", "no_tap", f"ip cannot be run: {error}") from error
    _, words = await process.communicate()
    if process.returncode and not may_fail:
        said = words.decode(errors="replace").strip()
        raise DriverError("permanent", "no_tap", f"ip {' '.join(arguments)} fails: {said}")
    return process.returncode == 0
