"""Rows: what a rogue agent costs others' creates, and a start on a ledger with a bad host."""

import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.api.databases import seed_hosts
from benchmarks.api.serving import NEVER_OFFLINE, Serving, running
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import Job
from benchmarks.hardening.bad import Orders, harm
from benchmarks.hardening.clients import post
from benchmarks.hardening.good import good_requests
from benchmarks.hardening.sizes import Sizes
from benchmarks.results import Result, at_least, at_most

_GOAL_MS = 100.0
_ROGUE, _RESTART = "rogue hello: others' create p99", "restart with a bad host"
_BAD = (
    '{"cpu_milli":{"total":1},"memory_bytes":{"total":1},"disk_bytes":{"total":1},'
    f'"devices":[{{"model":"x","memory_bytes":{2**70}}}]}}'
)


def jobs(sizes: Sizes, folder: Path) -> Iterator[Job]:
    """Return the jobs of this topic."""
    yield Job(_ROGUE, partial(_rogue, sizes, folder))
    yield Job(_RESTART, partial(_restart, sizes, folder))


def _rogue(sizes: Sizes, folder: Path) -> Iterator[Result]:
    place = folder / "rogue"
    place.mkdir(parents=True)
    database = f"sqlite:///{place}/roost.db"
    seed_hosts(database, sizes.hosts)
    with running(database, place, NEVER_OFFLINE) as serving:
        credentials = [_join(serving, f"rogue-{number}") for number in range(sizes.rogues)]
        alone = good_requests(serving.port, serving.token, sizes.watched_s / 4, 0)
        with harm(Orders("rogues", serving.port, sizes.rogues, credentials)):
            beside = good_requests(serving.port, serving.token, sizes.watched_s, 10_000_000)
            heard = sum(_is_registered(serving, f"rogue-{at}") for at in range(sizes.rogues))
    if not heard:
        raise Wrong("no rogue was ever registered: nothing was measured")
    note = f"{heard} registered; {beside.note}; alone p99 {alone.p99_ms:.1f} ms"
    yield at_most(_ROGUE, beside.p99_ms, "ms", sizes.goal(_GOAL_MS), note=note)


def _join(serving: Serving, host: str) -> str:
    token = post(serving, "/api/v1/join-tokens", {"host": host})["secret"]
    joined = post(serving, "/api/v1/agents/join", {"host": host}, str(token))
    return str(joined["credential"])


def _is_registered(serving: Serving, host: str) -> bool:
    request = urllib.request.Request(
        f"{serving.url}/api/v1/hosts/{host}",
        headers={"Authorization": f"Bearer {serving.token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return bool(reply.status == 200)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False


def _restart(sizes: Sizes, folder: Path) -> Iterator[Result]:
    place = folder / "bad-host"
    place.mkdir(parents=True)
    file = place / "roost.db"
    seed_hosts(f"sqlite:///{file}", sizes.hosts)
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("UPDATE hosts SET inventory = ? WHERE number = 1", (_BAD,))
    connection.close()
    with running(f"sqlite:///{file}", place, NEVER_OFFLINE) as serving:
        with urllib.request.urlopen(serving.url + "/readyz", timeout=10) as reply:
            said = msgspec.json.decode(reply.read())
        good_requests(serving.port, serving.token, sizes.watched_s / 4, 0)
        took = serving.ready_s
    if "set aside" not in said["detail"]:
        raise Wrong(f"a bad host is not named: {said}")
    ready = float(said["status"] == "ready")
    yield at_least(
        _RESTART, ready, "ready", sizes.goal(1.0), note=f"{took:.1f} s; {said['detail']}"
    )
