"""The database goes away or has no room: a clear 503, nothing half done, and then on as before."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from roost.base.units import MIB
from tests.databases import running_postgres
from tests.system.load import Load
from tests.system.processes import Server, Site, all_vms, assert_healthy, eventually, examine

pytestmark = pytest.mark.slow

TIMERS = {"heartbeat_s": 0.5, "suspect_s": 20, "offline_s": 40, "lease_s": 30}
#: What is left when the disk is called full.
ROOM = MIB // 4
LONG = bool(os.environ.get("ROOST_LONG"))


class Prober:
    """Asks without patience and keeps every answer that is no success."""

    def __init__(self, site: Site, server: Server) -> None:
        headers = {"Authorization": f"Bearer {site.token}"}
        self._http = httpx.Client(base_url=server.url, headers=headers, timeout=60)
        self.statuses: Counter[int] = Counter()
        self.made: set[str] = set()

    def create(self, name: str) -> int:
        """Try to create a VM once; an error must have the one shape."""
        demand = {"cpu": 0.1, "memory": "64MiB"}
        answer = self._http.post("/api/v1/vms", json={"name": name, "demand": demand})
        self.statuses[answer.status_code] += 1
        if answer.status_code == 201:
            self.made.add(answer.json()["id"])
        else:
            assert answer.status_code == 503, answer.text
            error = answer.json()["error"]
            assert error["code"] == "unavailable"
            assert error["message"]
            assert error.keys() == {"code", "message", "details", "hint"}
            assert int(answer.headers["retry-after"]) > 0
        return answer.status_code

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


@contextmanager
def probing(site: Site, server: Server) -> Iterator[Prober]:
    """Lend a prober."""
    prober = Prober(site, server)
    try:
        yield prober
    finally:
        prober.close()


def test_postgresql_crashes_and_comes_back_under_load(site: Site) -> None:
    with running_postgres() as postgres:
        url = postgres.new_database()
        server = site.serve(database=url, **TIMERS)
        site.hosts("host", server, count=3, cpu="200", max_destroy=1000)
        with (
            probing(site, server) as prober,
            Load(lambda: [site.async_client(server, patience_s=300)], seed=5, pause_s=0.02) as load,
        ):
            for round_ in range(5 if LONG else 2):
                # First a crash that is over at once, then one that outlasts every try.
                postgres.stop(signal.SIGQUIT)
                if round_ % 2:
                    eventually("it says so", lambda: prober.create("probe-1") == 503)
                assert postgres.start()
                names = (f"probe-{round_}-{at}" for at in range(1000))
                eventually("it goes on", lambda: prober.create(next(names)) == 201)  # noqa: B023
        assert not load.refused
        promised = load.kept.keys() | prober.made
        with site.client(server) as client:
            eventually("what was promised exists", lambda: all_vms(client).keys() >= promised)
            # A probe that was told 503 may have been kept all the same; nothing else may.
            spare = [vm for vm in all_vms(client).values() if vm.id not in promised]
            assert all(vm.name.startswith("probe-") or vm.id in load.deleted for vm in spare)
            assert {host.health for host in client.all_hosts()} == {"online"}
        site.doctor(server)
        assert server.stop() == 0
        assert_healthy(asyncio.run(examine(url)))


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Mount a small file system of its own."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a small file system needs root and mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(site: Site) -> None:
    folder = site.folder / "small"
    folder.mkdir()
    with small_disk(folder, 64 * MIB):
        try:
            filler = folder / "filler"

            def fill() -> None:
                free = shutil.disk_usage(folder).free
                filler.write_bytes(bytes(max(0, free - ROOM)))

            run_out_of_room(site, f"sqlite:///{folder}/roost.db", lambda _: fill(), filler.unlink)
        finally:
            site.end()


def test_a_limit_on_files_refuses_and_goes_on_when_it_is_raised(
    site: Site, sqlite_url: str, tmp_path: Path
) -> None:
    pids: list[int] = []

    def limit(server: Server) -> None:
        pids.append(server.pid)
        largest = max(path.stat().st_size for path in tmp_path.glob("roost.db*"))
        set_limit(server.pid, largest + ROOM)

    run_out_of_room(site, sqlite_url, limit, lambda: set_limit(pids[0], resource.RLIM_INFINITY))


def set_limit(pid: int, size: int) -> None:
    """Limit how large a file a process may write."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def run_out_of_room(
    site: Site, url: str, fill: Callable[[Server], None], make_room: Callable[[], None]
) -> None:
    """Create VMs until there is no room, make room, and check that nothing is half done."""
    server = site.serve(database=url, log_level="warning", **TIMERS)
    site.hosts("host", server, count=2, cpu="1000")
    with probing(site, server) as prober, site.client(server) as client:
        fill(server)
        names = (f"vm-{at}" for at in range(100_000))
        refused = 0
        while refused < 20:
            refused += prober.create(next(names)) == 503
        before = set(prober.made)
        assert all_vms(client).keys() == before, "something half done is seen"
        make_room()
        eventually("it goes on", lambda: prober.create(next(names)) == 201)
        assert all_vms(client).keys() == prober.made
        assert json.loads(httpx.get(f"{server.url}/readyz").text)["status"] == "ready"
    site.doctor(server)
    assert server.stop() == 0
    assert_healthy(asyncio.run(examine(url)))
