"""A move without memory: the guest is off, its disk is copied, and the target boots it.

`qemu-img` writes into the export of the copy that waits. Only what the VM has written itself is
sent when both disks are over the same image. Whoever cancels this ends the copying; begun anew, it
writes the same bytes again.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path

from roost.agent.drivers.qemu import power
from roost.agent.drivers.qemu.consoles import end_of_console
from roost.agent.drivers.qemu.disks import QEMU_IMG, image_format
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import Parts, disk_path
from roost.agent.drivers.qemu.move.attendance import Asking
from roost.agent.drivers.qemu.move.endpoints import Address
from roost.agent.drivers.qemu.move.leaving import disk_target, leave, same_image
from roost.agent.drivers.qemu.move.migrationtls import check, credentials
from roost.agent.drivers.qemu.move.mirror import EXPORT
from roost.base import private
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM, MoveInfo, ProgressInfo

log = logging.getLogger(__name__)

_REPORT_S = 2.0
_CONSOLE_S = 5.0
_LAST_WORDS = 2000
#: Both ends are named in JSON, one on a line; what of the source fails is told by its path inside.
_JSON_NAME = re.compile(r"'?json:\{.*\"nbd\".*\}'?")


async def send_cold(
    parts: Parts, handle: VMHandle, vm: DesiredVM, progress: Callable[[ProgressInfo], None]
) -> None:
    """Shut the VM down if it runs, copy its disk, and write down that it has left."""
    check(vm.endpoint, parts.settings.migrate_tls)
    target = await disk_target(parts, handle, vm)
    if handle.is_alive:
        await power.shut_down(handle, parts.clock, parts.settings.stop_grace_s, "")
    if target is not None:
        argv = await _command(parts, handle, vm, target)
        await _copy(parts, handle, vm, argv, progress)
    await hand_console(handle.folder, vm, parts.clock)
    await leave(parts, handle, vm)


async def hand_console(folder: Path, vm: DesiredVM, clock: Clock) -> None:
    """Hand the end of the log to the target's agent, if it answers: no move waits for a log."""
    end, text = await asyncio.to_thread(end_of_console, folder)
    asking = Asking(vm.endpoint.get("agent", ""), clock)
    try:
        if not await asking.hand_console(end, text, _CONSOLE_S):
            log.warning("the console log of %s stays behind: its target does not answer", vm.name)
    except DriverError as error:
        log.warning("the console log of %s stays behind: %s", vm.name, error.message)
    finally:
        asking.close()


async def _command(parts: Parts, handle: VMHandle, vm: DesiredVM, target: Address) -> list[str]:
    """Return the command line that copies the disk."""
    manifest, settings = handle.manifest, parts.settings
    assert manifest is not None
    argv = [QEMU_IMG, "convert", "-p", "-n", "-f", "qcow2", "-O", "raw"]
    bandwidth = (vm.move or MoveInfo()).bandwidth_bytes or settings.migrate_bandwidth_bytes
    if bandwidth:
        argv += ["-r", str(bandwidth)]
    node: dict[str, object] = {"driver": "nbd", "server": target.socket, "export": EXPORT}
    if settings.migrate_tls is not None:
        made = credentials(settings.migrate_tls, "client")
        argv += ["--object", json.dumps(made)]
        node |= {"tls-creds": made["id"], "tls-hostname": target.host or "localhost"}
    disk = handle.folder / disk_path(settings, vm.id, manifest.storage)
    source: dict[str, object] = {
        "driver": "qcow2",
        "file": {"driver": "file", "filename": str(disk.absolute())},
        "backing": None,
    }
    if manifest.image is not None:
        image = await parts.images.fetch(manifest.image, vm_id=vm.id)
        kind = await image_format(image)
        source["backing"] = {
            "driver": kind,
            "read-only": True,
            "file": {"driver": "file", "filename": str(image.absolute()), "read-only": True},
            **({"backing": None} if kind == "qcow2" else {}),
        }
        if same_image(manifest, vm.endpoint):
            argv += ["-B", str(image.absolute()), "-F", kind]
    return [*argv, _json(source), _json({"driver": "raw", "file": node})]


async def _copy(
    parts: Parts,
    handle: VMHandle,
    vm: DesiredVM,
    argv: list[str],
    progress: Callable[[ProgressInfo], None],
) -> None:
    clock, settings = parts.clock, parts.settings
    size = handle.manifest.disk_bytes if handle.manifest is not None else 0
    limit_s = (vm.move or MoveInfo()).limit_s or settings.migrate_limit_s
    begun_at = moved_at = clock.monotonic()
    read = -1
    pipe = asyncio.subprocess.PIPE
    copying = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env=private.plain_environment(),
    )
    ended = asyncio.create_task(copying.communicate())
    try:
        while not ended.done():
            timer = asyncio.create_task(clock.sleep(_REPORT_S))
            await asyncio.wait((ended, timer), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            now = clock.monotonic()
            if (seen := _bytes_read(copying.pid)) != read:
                read, moved_at = seen, now
            progress(ProgressInfo(sent_bytes=max(0, read), left_bytes=max(0, size - read)))
            _check_pace(vm, now - moved_at, settings.migrate_progress_s, now - begun_at, limit_s)
        _, complaint = await ended
    finally:
        if copying.returncode is None:
            copying.kill()
            await copying.wait()
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)
    if copying.returncode:
        words = plain_words(complaint.decode(errors="replace"), copying.returncode)
        text = f"the disk of {vm.name} could not be sent and stays here: {words}"
        raise DriverError("permanent", "mirror_failed", text)


def plain_words(complaint: str, status: int) -> str:
    """Return why qemu-img failed, without the file names in JSON that nobody can read."""
    words = _JSON_NAME.sub("the disk at the target", complaint).strip()[-_LAST_WORDS:]
    ending = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return words or f"qemu-img {ending} and said nothing"


def _check_pace(
    vm: DesiredVM, still_s: float, most_s: float, took_s: float, limit_s: float
) -> None:
    if still_s > most_s:
        text = f"nothing of {vm.name}'s disk was sent for {most_s:g} s; it stays here"
        raise DriverError("permanent", "migration_stalled", text)
    if took_s > limit_s:
        text = f"the disk of {vm.name} was not sent within {limit_s:g} s; it stays here"
        raise DriverError("permanent", "migration_too_slow", text)


def _bytes_read(pid: int) -> int:
    """Return how much a process has read, which for a copy is how far it is."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return -1
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), -1)


def _json(node: dict[str, object]) -> str:
    return f"json:{json.dumps(node)}"
