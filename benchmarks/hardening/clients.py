"""Rows: what bad clients cost good ones, beside what these take when nobody does harm."""

import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.api.databases import seed_hosts
from benchmarks.api.serving import NEVER_OFFLINE, Serving, running
from benchmarks.api.workload import create_body
from benchmarks.engine.measuring import Job
from benchmarks.hardening.bad import Orders, harm
from benchmarks.hardening.good import Spent, good_requests
from benchmarks.hardening.sizes import Sizes
from benchmarks.results import Result, at_most

_GOAL_MS = 100.0
#: Readers with one token; the server takes 256.
_READERS_PER_TOKEN = 200
_BATCH = 500


def jobs(sizes: Sizes, folder: Path) -> Iterator[Job]:
    """Return the jobs of this topic."""
    for what, kind, count in (
        (f"{sizes.readers:,} readers", "readers", sizes.readers),
        (f"{sizes.half_requests:,} half requests", "halves", sizes.half_requests),
        ("bad tokens", "tokens", sizes.bad_connections),
    ):
        name = f"good p99 beside {what}"
        yield Job(name, partial(_beside, name, kind, count, sizes, folder))


def _beside(name: str, kind: str, count: int, sizes: Sizes, folder: Path) -> Iterator[Result]:
    place = folder / kind
    place.mkdir(parents=True)
    database = f"sqlite:///{place}/roost.db"
    seed_hosts(database, sizes.hosts)
    with running(database, place, NEVER_OFFLINE) as serving:
        tokens = [serving.token]
        if kind == "readers":
            _fill(serving, sizes.vms)
            tokens = [_viewer(serving, number)
                      for number in range(-(-count // _READERS_PER_TOKEN))]  # fmt: skip
        alone = good_requests(serving.port, serving.token, sizes.watched_s / 4, 0)
        before = _resident_mib(serving.pid)
        with harm(Orders(kind, serving.port, count, tokens)):
            beside = good_requests(serving.port, serving.token, sizes.watched_s, 10_000_000)
            after = _resident_mib(serving.pid)
    yield at_most(
        name, beside.p99_ms, "ms", sizes.goal(_GOAL_MS), note=_note(beside, alone, before, after)
    )


def _note(beside: Spent, alone: Spent, before: float, after: float) -> str:
    return f"{beside.note}; alone p99 {alone.p99_ms:.1f} ms; memory {before:.0f} to {after:.0f} MiB"


def _fill(serving: Serving, vms: int) -> None:
    """Create VMs, so that there are events."""
    for first in range(0, vms, _BATCH):
        some = [{**create_body(first + number), "name": f"old-{first + number}"}
                for number in range(_BATCH)]  # fmt: skip
        post(serving, "/api/v1/vms:batch", {"vms": some})


def _viewer(serving: Serving, number: int) -> str:
    """Make a token that may read."""
    made = post(serving, "/api/v1/tokens", {"name": f"reader-{number}", "role": "viewer"})
    return str(made["secret"])


def post(serving: Serving, path: str, body: object, token: str = "") -> dict[str, object]:
    """Post something as an administrator, or with another token."""
    request = urllib.request.Request(
        serving.url + path,
        data=json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {token or serving.token}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        answered: dict[str, object] = json.load(reply)
    return answered


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
