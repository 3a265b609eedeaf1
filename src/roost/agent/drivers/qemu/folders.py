"""The folders of a host's VMs: which VMs are in them, found again by a new agent, and their end.

A folder without a readable manifest is still a VM. If a QEMU runs in it, the copy before and the
command line say enough to go on; if none runs, it is `unknown` until a tombstone comes.
"""

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from roost.agent.drivers.qemu.manifest import (
    NAME,
    Found,
    Manifest,
    find_running,
    read_manifest,
    recovered,
    write_manifest,
)
from roost.agent.drivers.qemu.process import Identity, is_alive
from roost.base import private
from roost.hostkit.files import put_aside, sync_folder

log = logging.getLogger(__name__)

_ENDING, _REMOVED = ".vm", ".removed"


class Adopted(NamedTuple):
    """One folder as a new agent finds it. Without a manifest nobody can tell what it is."""

    vm_id: str
    folder: Path
    manifest: Manifest | None
    process: Identity | None  # one that is alive


def read_folders(vms: Path) -> list[Adopted]:
    """Find every VM of a host; finishes removals that were interrupted."""
    private.make_folder(vms)
    running = find_running(vms)
    adopted = []
    for entry in sorted(os.scandir(vms), key=lambda each: each.name):
        if entry.name.endswith(_ENDING) and entry.is_dir():
            if any(Path(entry.path).iterdir()) or entry.name in running:
                adopted.append(_adopt(Path(entry.path), running.get(entry.name)))
            else:
                Path(entry.path).rmdir()  # made by a start that came no further
        elif entry.name.endswith(_REMOVED):
            shutil.rmtree(entry.path, ignore_errors=True)
    return adopted


def _adopt(folder: Path, found: Found | None) -> Adopted:
    manifest, whole = read_manifest(folder)
    if not whole and found is not None:
        manifest = _recover(folder, manifest, found)
    elif not whole:
        log.error("the manifest in %s is broken or missing, and no QEMU runs there", folder)
        known = manifest.order.id if manifest else unquote(folder.name.removesuffix(_ENDING))
        return Adopted(known, folder, None, None)
    assert manifest is not None
    process = manifest.process
    if process is None or not is_alive(process):
        # An agent that was killed right after it had started one has not written it down.
        process = found.identity if found is not None else None
        if process is not None:
            manifest = replace(manifest, process=process)
            _write(folder, manifest)
    return Adopted(manifest.order.id, folder, manifest, process)


def _recover(folder: Path, before: Manifest | None, found: Found) -> Manifest:
    log.warning("the manifest in %s is broken or missing; QEMU %s tells", folder, found.identity)
    with suppress(OSError):
        put_aside(folder / NAME)
    if before is not None and before.order.id == found.vm_id:
        # The copy is a step behind, but it is the same VM; whether it came by a move QEMU tells.
        manifest = replace(before, process=found.identity, shape=found.shape)
    else:
        manifest = recovered(found)
    _write(folder, manifest)
    return manifest


def _write(folder: Path, manifest: Manifest) -> None:
    """Write a recovered manifest if possible: a full disk must not hide a VM that runs."""
    try:
        write_manifest(folder, manifest)
    except OSError as error:
        log.error("the manifest in %s cannot be written: %s", folder, error)


def remove_folder(folder: Path, shared_disk: Path | None) -> None:
    """Remove a VM's folder, and its disk when that is elsewhere; its process is gone.

    The folder is renamed first, so that one that is half removed is never taken for a VM.
    """
    if shared_disk is not None:
        shared_disk.unlink(missing_ok=True)
    removed = folder.with_suffix(_REMOVED)
    if folder.exists():
        shutil.rmtree(removed, ignore_errors=True)
        folder.rename(removed)
        sync_folder(folder.parent)
    shutil.rmtree(removed, ignore_errors=True)
