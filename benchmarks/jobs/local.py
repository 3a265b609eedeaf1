"""The rows `jobs 10k local`: a server, one local worker of eight slots, and `/bin/true` as a child.

Submitted in one call, run, collected, durable; beside them `dask.distributed`, which keeps nothing,
with the same child for each task, as many slots and in the same run. Both begin with a worker that
is there. The delay is from the submission of a single job, on slots that are free, to its start:
what bulk work waits for its turn says nothing about a scheduler. What is submitted is counted, and
every exit code is looked at before a figure is.
"""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.api.serving import running
from benchmarks.results import Result, at_least, at_most, skipped
from roost.base.timestamps import read_timestamp
from roost.client import Client
from roost.wire.bodies import DemandBody
from roost.wire.jobs import ArrayDetail, ChangePool, CreatePool, SubmitJobs

SLOTS, JOBS, SINGLES = 8, 10_000, 60
GOAL, AIM = 0.5, 1.0
_CHILD = "/bin/true"
_DEMAND = DemandBody(cpu=1, memory="16MiB")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class LocalFigures:
    """Jobs a second, and milliseconds from the submission of one to its start."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float = 0.0  # of the server, the worker and all their children, for each job


def run_roost(count: int) -> LocalFigures:
    """Run jobs on a real server with a real worker."""
    with TemporaryDirectory(prefix="bench-jobs-") as name:
        folder = Path(name)
        database = f"sqlite:///{folder / 'roost.db'}"
        with (
            running(database, folder / "plane") as serving,
            Client(serving.url, serving.token) as client,
        ):
            found, took, cpu = _bulk(client, count, folder)
            delays = sorted(_delay_ms(client) for _ in range(SINGLES))
            client.change_pool("default", ChangePool(min_machines=0, idle_grace_s=0))
            until = time.monotonic() + 30
            while client.get_pool("default").machines and time.monotonic() < until:
                client.get_array(found, wait_s=0.5)
    return LocalFigures(count / took, *_middle_and_tail(delays), cpu_ms=1000 * cpu / count)


def _bulk(client: Client, count: int, folder: Path) -> tuple[str, float, float]:
    client.create_pool(
        CreatePool(
            name="default", provider="local", types=[f"local-{SLOTS}"], max_machines=1,
            min_machines=1, idle_grace_s=600,
        )
    )  # fmt: skip
    _wait(client, client.submit_jobs(SubmitJobs(command=[_CHILD], demand=_DEMAND)).id)
    cpu, began = _cpu_s(folder), time.perf_counter()
    made = client.submit_jobs(SubmitJobs(command=[_CHILD], count=count, demand=_DEMAND))
    found = _wait(client, made.id)
    took = time.perf_counter() - began
    if (found.state, found.jobs.completed) != ("completed", count):
        raise AssertionError(f"{found.jobs.completed} of {count} jobs completed")
    return made.id, took, _cpu_s(folder) - cpu


def _wait(client: Client, array: str) -> ArrayDetail:
    while True:
        found = client.get_array(array, wait_s=10)
        if found.finished_at is not None:
            return found


def _delay_ms(client: Client) -> float:
    before = time.time_ns() // 1_000_000
    made = client.submit_jobs(SubmitJobs(command=[_CHILD], demand=_DEMAND))
    _wait(client, made.id)
    job = client.get_job(made.id)
    # A job this short is reported with its end; it began so long before that.
    ended = read_timestamp(job.finished_at or "", "finished_at")
    return max(0.0, float(ended - before - job.run_ms))


def _cpu_s(folder: Path) -> float:
    """Return the CPU time of every process that names a folder, and of what they have reaped."""
    total = 0
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            if os.fsencode(folder) not in (each / "cmdline").read_bytes():
                continue
            text = (each / "stat").read_text()
        except OSError:
            continue
        total += sum(int(word) for word in text[text.rindex(")") + 2 :].split()[11:15])
    return total / _TICKS


def run_dask(count: int) -> LocalFigures:
    """Run the same with dask.distributed: one worker process with as many threads."""
    from distributed import Client as DaskClient
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=SLOTS, processes=True, dashboard_address=None,
            host="127.0.0.1", silence_logs=50,
        ) as cluster,
        DaskClient(cluster) as client,
    ):  # fmt: skip
        client.submit(_child, -1, pure=False).result()
        began = time.perf_counter()
        codes = client.gather(client.map(_child, range(count), pure=False))
        took = time.perf_counter() - began
        if len(codes) != count or any(code for code, _ in codes):
            raise AssertionError("tasks of dask have failed")
        delays = []
        for number in range(SINGLES):
            before = time.time()
            _, started = client.submit(_child, number, pure=False).result()
            delays.append(1000 * (started - before))
    return LocalFigures(count / took, *_middle_and_tail(sorted(delays)))


def _child(_: int) -> tuple[int, float]:
    """Run the child of a task; return its exit code and when it was begun."""
    began = time.time()
    return subprocess.run([_CHILD], check=False).returncode, began


def _middle_and_tail(delays: list[float]) -> tuple[float, float]:
    return delays[len(delays) // 2], delays[min(len(delays) - 1, int(len(delays) * 0.99))]


def local_rows(count: int = JOBS) -> list[Result]:
    """Return the rows of jobs on this machine: rate beside dask's, and delays."""
    name = "jobs 10k local"
    try:
        import distributed  # noqa: F401
    except ImportError:
        return [skipped(name, "x dask", "pip install distributed")]
    theirs, ours = run_dask(count), run_roost(count)
    load = os.getloadavg()[0]
    note = (
        f"{ours.rate:.0f} jobs a second durable, dask {theirs.rate:.0f}; {count} jobs, "
        f"{ours.cpu_ms:.1f} ms of CPU a job, load {load:.1f}"
    )
    rows = [at_least(name, ours.rate / theirs.rate, "x dask", GOAL, AIM, note=note)]
    for word, mine, other in (
        ("p50", ours.p50_ms, theirs.p50_ms),
        ("p99", ours.p99_ms, theirs.p99_ms),
    ):
        said = f"of {SINGLES} single jobs, submission to start; dask {other:.1f} ms"
        rows.append(at_most(f"{name} delay {word}", mine, "ms", None, note=said))
    return rows
