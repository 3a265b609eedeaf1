"""The processes of a demo: started with a log of their own, ended by their ids, never left behind.

A child of a demo that is killed outright gets a signal from the kernel. Fence guards outlive
their agents by design, so they are found by their command line: module and guarded folder. So do
the workers of local pools: their provider finds them in its folder.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from roost.agent.fencing import guard
from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from roost.model.job import Launch

#: How long a process gets to end by itself.
GRACE_S = 5.0

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # looked up here: little is safe between fork and exec


def die_with_parent() -> None:
    """Ask the kernel, between fork and exec, to end this process when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """A `roost` command that runs. What it writes is told line by line, and kept in a file."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path, told: Callable[[str], None]
    ) -> None:
        self.name, self.log = name, log
        self._process = process
        self._reading = asyncio.create_task(self._read(told))

    @classmethod
    async def start(
        cls,
        name: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        told: Callable[[str], None] = lambda _: None,
    ) -> "Child":
        """Start `roost ARGUMENTS`, away from the terminal's Ctrl-C."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "roost.cli.main",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        return cls(name, process, log, told)

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Return whether it runs no more."""
        return self._process.returncode is not None

    async def _read(self, told: Callable[[str], None]) -> None:
        assert self._process.stderr is not None
        with self.log.open("ab", buffering=0) as kept:
            async for line in self._process.stderr:
                kept.write(line)
                told(line.decode(errors="replace").rstrip())

    async def wait(self) -> int:
        """Return its exit code when it has ended and all that it wrote is read."""
        await asyncio.shield(self._reading)
        return await self._process.wait()

    async def kill(self) -> None:
        """Kill the process at once, as a power cut would."""
        self._signal(signal.SIGKILL)
        await self.wait()

    async def end(self) -> None:
        """Ask it to end, and end it when it does not."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self.wait()
        except TimeoutError:
            await self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    def fail(self) -> Unavailable:
        """Return the error of a child that ended although it should run."""
        last = [line for line in self.log.read_text(errors="replace").splitlines() if line][-1:]
        said = f": {last[0]}" if last else ""
        return Unavailable(
            f"{self.name} has ended{said}", hint=f"Maybe {self.log} tells more.", log=str(self.log)
        )


def guards_below(folder: Path) -> list[int]:
    """Return the process ids of the fence guards of the hosts in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # gone meanwhile, or somebody else's
        if guard.__name__ in words and any(_is_below(word, folder) for word in words):
            found.append(int(entry.name))
    return found


def _is_below(word: str, folder: Path) -> bool:
    return word.startswith("/") and Path(word).is_relative_to(folder)


async def end_guards(folder: Path) -> None:
    """End the fence guards of the hosts in a folder; what they guard ends with the demo."""
    await kill_all(guards_below(folder))


async def kill_all(pids: Iterable[int]) -> None:
    """Kill processes that are not our children, and wait until they are gone."""
    gone = [await _kill(pid) for pid in pids]
    if gone:
        await asyncio.wait(gone, timeout=GRACE_S)


async def _kill(pid: int) -> "asyncio.Future[None]":
    """Kill a process that is not our child; the future is done when it is gone."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    try:
        handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        gone.set_result(None)
        return gone

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        if not gone.done():
            gone.set_result(None)

    loop.add_reader(handle, ended)
    return gone


async def end_machines(folder: Path, clock: Clock) -> None:
    """End the workers of a folder, which outlive their control plane by design, and their jobs."""
    from roost.providers.local import LocalProvider

    if folder.is_dir():
        provider = LocalProvider(folder, _no_worker, (), clock=clock)
        for each in sorted(folder.iterdir()):
            await provider.terminate(each.name)


def _no_worker(launch: "Launch", data: Path) -> NoReturn:
    raise InvalidRequest(f"a demo that ends starts no worker in {data}")
