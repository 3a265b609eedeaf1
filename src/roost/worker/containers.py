"""Jobs that are container images: podman or docker, asked on its own command line.

An engine is used if it answers. The container has the limits of its attempt, the job's folder as
`/work` and a name made from the attempt's, so that it is found after any crash. Credentials of a
registry are in a file that only we can read, as long as the image is pulled; the assignment that
they came with is another such file, as long as the attempt is kept.
"""

import asyncio
import base64
import json
import logging
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from roost.base import private
from roost.model.job import EndReason
from roost.model.registries import DOCKER_HUB, registry_host
from roost.wire.workerlink import Assignment
from roost.worker.files.inputs import FilesFailed

log = logging.getLogger("roost.worker")

EngineName = Literal["podman", "docker"]
#: Variables that an engine needs of its own.
_OWN = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINER_HOST")
#: How names of variables begin that no engine, loader or runtime reads: only those go through the
#: engine's own environment. Which names steer one of them cannot be listed to the end.
_OURS = ("JOB_", "ROOST_")
#: Where docker looks for the login of Docker's own registry; podman looks for the host.
_DOCKER_S_OWN = "https://index.docker.io/v1/"
_ASK_S = 20.0
_PULL_S = 1800.0
_MISSING = (
    "manifest unknown", "not found", "no such image", "name unknown", "does not exist",
    "did not resolve", "invalid reference", "unable to find",
)  # fmt: skip
_DENIED = ("unauthorized", "denied", "authentication required", "forbidden", "incorrect username")


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine that answers: its command, and options of every run."""

    name: EngineName
    command: tuple[str, ...]
    run_options: tuple[str, ...] = ()

    async def has(self, image: str) -> bool:
        """Say whether an image is on this machine."""
        code, _ = await ask((*self.command, "image", "inspect", image), _ASK_S)
        return code == 0

    async def pull(self, assignment: Assignment, folder: Path) -> None:
        """Have an image on this machine; raises FilesFailed with what stands against it."""
        if await self.has(assignment.image):
            return
        login = self._login(assignment, folder)
        try:
            before, after = self._with_login(login)
            command = (*self.command, *before, "pull", *after, assignment.image)
            code, said = await ask(command, _PULL_S)
        finally:
            if login is not None:
                shutil.rmtree(login, ignore_errors=True)
        if code == 0:
            return
        raise FilesFailed(*_judged(assignment.image, said))

    def run(self, assignment: Assignment, folder: Path, environment: dict[str, str]) -> list[str]:
        """Return the command line that runs an attempt in a container."""
        variables = folder / "environment"
        private.make_file(variables)
        lines = [f"{n}={v}" for n, v in environment.items() if _is_line(v)]
        variables.write_text("".join(f"{line}\n" for line in lines))
        others = [name for name, value in environment.items() if not _is_line(value)]
        return [
            *self.command,
            "run",
            f"--name={container_name(assignment.attempt)}",
            f"--memory={assignment.memory_bytes}",
            f"--cpus={assignment.cpu_milli / 1000:.3f}",
            f"--env-file={variables}",
            *(f"--env={name}" for name in others),  # the engine takes it from its own environment
            f"--volume={folder / 'work'}:/work",
            "--workdir=/work",
            "--pull=never",
            *self.run_options,
            assignment.image,
            *assignment.command,
        ]

    @staticmethod
    def variables(environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the engine itself is run with: its own, and those of the job
        that no file of lines can hold."""
        own = {name: os.environ[name] for name in _OWN if name in os.environ}
        passed = {name: value for name, value in environment.items() if not _is_line(value)}
        if others := sorted(name for name in passed if not name.startswith(_OURS)):
            raise FilesFailed(
                "parameters",
                f"the variable {others[0]} of a container has several lines, which only one whose "
                "name begins with JOB_ may have; maybe give it as a file",
            )
        return own | passed

    def kill(self, attempt: str) -> list[str]:
        """Return the command that ends a container, whoever waits for it."""
        return [*self.command, "kill", container_name(attempt)]

    async def was_short_of_memory(self, attempt: str) -> bool:
        """Say whether the kernel ended a container for want of memory."""
        asked = ("inspect", "--format", "{{.State.OOMKilled}}", container_name(attempt))
        code, said = await ask((*self.command, *asked), _ASK_S)
        return code == 0 and said.strip().endswith("true")

    async def remove(self, attempt: str) -> None:
        """Remove the container of an attempt, running or not."""
        await ask((*self.command, "rm", "--force", container_name(attempt)), _ASK_S)

    def _login(self, assignment: Assignment, folder: Path) -> Path | None:
        if assignment.registry is None or not assignment.registry.registry:
            return None
        at = private.make_folder(folder / "login")
        words = f"{assignment.registry.user}:{assignment.registry.password}"
        known = {"auth": base64.b64encode(words.encode()).decode()}
        # Of the login, not of the image: whoever submits a job chooses that.
        host = registry_host(assignment.registry.registry)
        auths = {"auths": {self._looked_up(host): known}}
        private.make_file(at / "config.json")
        (at / "config.json").write_text(json.dumps(auths))
        return at

    def _looked_up(self, host: str) -> str:
        """Return under which name the engine looks for a login: docker's own is an address."""
        return _DOCKER_S_OWN if self.name == "docker" and host == DOCKER_HUB else host

    def _with_login(self, login: Path | None) -> tuple[list[str], list[str]]:
        if login is None:
            return [], []
        if self.name == "docker":
            return [f"--config={login}"], []
        return [], [f"--authfile={login / 'config.json'}"]


def _is_line(value: str) -> bool:
    """Say whether a file with a variable in each line can hold a value."""
    return "\n" not in value and "\r" not in value


def container_name(attempt: str) -> str:
    """Return the name of an attempt's container."""
    return f"roost-{blake2b(attempt.encode(), digest_size=12).hexdigest()}"


async def find_engine(asked: str = "", run_options: Sequence[str] = ()) -> Engine | None:
    """Return the container engine that was asked for, or the first of this machine that answers."""
    candidates = [shlex.split(asked)] if asked else [["podman"], ["docker"]]
    for command in candidates:
        name = Path(command[0]).name if command else ""
        if name not in ("podman", "docker") or shutil.which(command[0]) is None:
            if asked:
                log.warning("%r is not podman or docker, or is not installed", asked)
            continue
        code, said = await ask((*command, "info"), _ASK_S)
        if code == 0:
            known: EngineName = "podman" if name == "podman" else "docker"
            return Engine(known, tuple(command), tuple(run_options))
        log.info("%s does not answer: %s", name, said[-200:])
    return None


async def ask(command: Sequence[str], limit_s: float) -> tuple[int, str]:
    """Run a command; return its exit code and the end of what it said."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=private.plain_environment(),
    )
    try:
        async with asyncio.timeout(limit_s):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, f"{command[0]} did not answer within {limit_s:.0f} s"
    return process.returncode or 0, said[-4096:].decode(errors="replace")


def _judged(image: str, said: str) -> tuple[EndReason, str]:
    words = " ".join(said.split())[-500:]
    lower = words.lower()
    if any(each in lower for each in _DENIED):
        return "image_denied", f"{image}: {words}"
    if any(each in lower for each in _MISSING):
        return "image_missing", f"{image}: {words}"
    return "worker_failed", f"{image} could not be pulled: {words}"
