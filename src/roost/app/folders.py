"""Data folders of the processes an operator starts: made private, and mended if they are not."""

import logging
from collections.abc import Iterable
from pathlib import Path

from roost.app.options import KEY_NAME
from roost.base.private import is_open, is_ours, make_folder, tighten_folder

log = logging.getLogger("roost.folders")

#: What a control plane keeps in its data folder; the ledger sees to its own files.
SERVER_KEPT = ("admin-token", KEY_NAME)
#: What an agent and its driver keep in the agent's folder.
AGENT_KEPT = (
    "agent.lock", "credential", "desired.json", "fence", "guard.json", "guard.lock",
    "heard", "images", "lease", "records", "vms",
)  # fmt: skip
#: All that makes a folder roost's: a control plane and an agent may share one.
_OURS = (
    *SERVER_KEPT,
    *AGENT_KEPT,
    "roost.db",
    "roost-series.db",
    "serve.log",
    "context.json",
    "demo",
    "hosts",
)


def close_to_others(folder: Path, names: Iterable[str], ours: Iterable[str] = ()) -> None:
    """Make a data folder, or close one that is roost's to other users; say what was changed.

    Only what roost keeps there, by name, is touched; `ours` are names that are roost's as well. A
    folder that has anything else in it stays open.
    """
    names, ours = tuple(names), (*_OURS, *ours)
    make_folder(folder)
    if changed := tighten_folder(folder, names, ours=ours):
        log.warning(
            "other users could read or enter %d files and folders of %s; they are closed now",
            len(changed),
            folder,
        )
    if is_open(folder) and not is_ours(folder, (*names, *ours)):
        log.warning(
            "%s is not roost's alone and left open to other users; what roost keeps in it is not. "
            "Maybe give --data a folder of its own",
            folder,
        )
