"""Whether KVM executes guests here, found out by a guest that boots and says so.

`/dev/kvm` can be opened on machines where it executes next to nothing: inside another VM its
instructions may be emulated one by one, fifty times slower than without KVM. So before KVM is
offered a QEMU is started with its own firmware and a boot sector that writes one byte to a port,
which ends QEMU with a code of its own. Asked once, when an agent is put together.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from roost.base import private
from roost.base.clock import Clock

log = logging.getLogger("roost.agent")

#: How long the guest may take under KVM; on an idle machine it is a fifth of a second.
WITHIN_S = 5.0
#: On a machine so busy that it took longer: how many times as long as without KVM.
_TIMES = 3.0
_PATIENCE_S = 30.0

_PORT, _VALUE = 0xF4, 0x10
#: What isa-debug-exit makes of the value.
_CODE = (_VALUE << 1) | 1
#: mov al, value; out port, al; hlt; jmp back; and the mark of a boot sector.
_SECTOR = bytes([0xB0, _VALUE, 0xE6, _PORT, 0xF4, 0xEB, 0xFD]).ljust(510, b"\0") + b"\x55\xaa"
_DISK_BYTES = 1 << 20


async def kvm_executes(binary: str, clock: Clock, within_s: float = WITHIN_S) -> bool:
    """Return whether a guest under KVM boots, and not much slower than an emulated one."""
    if await boots_within(binary, "kvm", within_s, clock) is not None:
        return True
    emulated_s = await boots_within(binary, "tcg", _PATIENCE_S, clock)
    limit_s = _TIMES * emulated_s if emulated_s is not None else 0.0
    return limit_s > 0.0 and await boots_within(binary, "kvm", limit_s, clock) is not None


async def boots_within(binary: str, accel: str, within_s: float, clock: Clock) -> float | None:
    """Return how many seconds a guest takes to boot; None when it does not in time."""
    with TemporaryDirectory(prefix="roost-probe-") as folder:
        disk = Path(folder, "disk")
        await asyncio.to_thread(disk.write_bytes, _SECTOR.ljust(_DISK_BYTES, b"\0"))
        argv = [
            binary, "-accel", accel, "-machine", "pc", "-m", "32M",
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-drive", f"if=none,id=disk0,format=raw,readonly=on,file={disk}",
            "-device", "virtio-blk-pci,drive=disk0,bootindex=1",
            "-device", f"isa-debug-exit,iobase={_PORT:#x},iosize=1",
        ]  # fmt: skip
        begun = clock.monotonic()
        code = await _run(argv, within_s)
    if code == _CODE:
        return clock.monotonic() - begun
    words = f"nothing for {within_s:.1f} s" if code is None else f"no boot sector (code {code})"
    log.warning("a guest that was tried under %s has executed %s", accel, words)
    return None


async def _run(argv: list[str], within_s: float) -> int | None:
    """Return the exit code of a program; None when it had to be killed or cannot be run."""
    nothing = asyncio.subprocess.DEVNULL
    try:
        guest = await asyncio.create_subprocess_exec(
            *argv, stdin=nothing, stdout=nothing, stderr=nothing, env=private.plain_environment()
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(within_s):
            return await guest.wait()
    except TimeoutError:
        return None
    finally:
        with suppress(ProcessLookupError):
            guest.kill()
        await guest.wait()
