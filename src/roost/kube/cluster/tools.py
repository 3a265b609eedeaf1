"""Where the programs of a local cluster are: built by `make kube-tools` into a cache folder."""

import os
from pathlib import Path

from roost.base.errors import Unavailable

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")


def tools_folder() -> Path:
    """Return the folder of the programs: ROOST_KUBE_BIN, or what was built last."""
    if chosen := os.environ.get("ROOST_KUBE_BIN"):
        return Path(chosen)
    cache = Path(os.environ.get("ROOST_CACHE") or Path.home() / ".cache" / "roost")
    return cache / "kube" / "current"


def tool(name: str) -> Path:
    """Return one program; Unavailable, with what to do, when it is not there."""
    path = tools_folder() / name
    if not os.access(path, os.X_OK):
        raise Unavailable(
            f"there is no {name} in {path.parent}",
            hint="Maybe `make kube-tools` builds it (needs Go, about 8 minutes, once), or "
            "ROOST_KUBE_BIN names a folder that has it.",
        )
    return path.resolve()


def missing_tools() -> list[str]:
    """Return which programs of a control plane are not there."""
    folder = tools_folder()
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]


def tools_version() -> str:
    """Return the Kubernetes release of what was built, or '' when the folder does not tell."""
    return tools_folder().resolve().name.partition("-")[0]
