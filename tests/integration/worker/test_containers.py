"""Jobs in containers, by a real podman with an image of our own; and what engines say of images."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from roost.wire.workerlink import RegistryLogin
from roost.worker.containers import Engine, _judged, find_engine
from roost.worker.files.inputs import FilesFailed
from tests.integration.worker.standin import StandInPlane, assignment, working


def engine_of(folder: Path) -> str:
    """Return a podman that keeps everything in a folder; skip where there is none."""
    runtime = shutil.which("runc")
    if shutil.which("podman") is None or runtime is None:
        pytest.skip("podman or runc is not installed: apt-get install podman runc")
    return (
        f"podman --root {folder}/graph --runroot {folder}/run --tmpdir {folder}/tmp "
        f"--storage-driver vfs --cgroup-manager cgroupfs --events-backend file --runtime {runtime}"
    )


def make_image(engine: str, folder: Path) -> None:
    """Make an image that has this machine's shell and the libraries it needs."""
    shell = Path("/bin/sh").resolve()
    needed = subprocess.run(["ldd", str(shell)], capture_output=True, text=True, check=True).stdout
    root = folder / "rootfs"
    for path in (str(shell), *re.findall(r"(/\S+) \(", needed)):
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    (root / "bin").mkdir(exist_ok=True)
    shutil.copy(shell, root / "bin/sh")
    archive = folder / "image.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    command = [*engine.split(), "import", str(archive), "localhost/shell:1"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def short() -> Iterator[Path]:
    """Make a folder with a short name: podman takes none of more than 50 characters."""
    with TemporaryDirectory(prefix="pod", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_a_job_runs_in_a_container_and_ends_with_its_limit(tmp_path: Path, short: Path) -> None:
    command = engine_of(short)
    make_image(command, tmp_path)
    options = ["--network=none", "--ulimit=nofile=1024:4096", "--ulimit=nproc=1024:4096"]

    async def case() -> StandInPlane:
        engine = await find_engine(command, options)
        assert engine is not None
        plane, image = StandInPlane(), "localhost/shell:1"
        plane.assigned = {
            "a:1": assignment("a:1", "sh", "-c", "echo $ROOST_JOB; exit 4", image=image),
            "c:1": assignment(
                "c:1",
                "sh",
                "-c",
                'echo "$JOB_TEXT"; echo $LINE',
                image=image,
                environment={"JOB_TEXT": "two\nlines", "LINE": "one"},
            ),
            "b:1": assignment("b:1", "sh", "-c", "while :; do :; done", image=image, run_limit_s=2),
        }
        async with working(plane, tmp_path / "w", engine=engine):
            for name in plane.assigned:
                await plane.report(name)
        return plane

    plane = asyncio.run(case())
    (a,), (b,) = plane.reports["a:1"], plane.reports["b:1"]
    left = subprocess.run(
        [*command.split(), "ps", "--all", "--quiet"], capture_output=True, check=True
    )
    assert (a.reason, a.exit_code) == ("exit_code", 4)
    assert plane.logs["a:1", "stdout"] == b"a\n"
    assert b.reason == "run_limit"
    assert plane.logs["c:1", "stdout"] == b"two\nlines\none\n"
    assert left.stdout == b""


def test_a_variable_of_several_lines_reaches_its_container(tmp_path: Path) -> None:
    engine = Engine("podman", ("podman",))
    given = {"JOB_TEXT": "two\nlines", "JOB_CARRIED": "a\rb", "LINE": "one"}
    asked = assignment("a:1", "true", image="localhost/shell:1")
    words = engine.run(asked, tmp_path, given)
    assert (tmp_path / "environment").read_text() == "LINE=one\n"
    assert {"--env=JOB_TEXT", "--env=JOB_CARRIED"} <= set(words)
    assert not any("lines" in word for word in words), "command lines are everybody's to read"
    passed = engine.variables(given)
    assert (passed["JOB_TEXT"], passed["JOB_CARRIED"]) == ("two\nlines", "a\rb")


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "https_proxy", "ALL_PROXY", "DOCKER_CONFIG",
     "CONTAINERS_CONF", "REGISTRY_AUTH_FILE", "STORAGE_OPTS", "GODEBUG", "TMPDIR", "GCONV_PATH",
     "_CONTAINERS_USERNS_CONFIGURED", "XDG_CONFIG_HOME", "TLS_CERT", "job_text", "JOBS", "TEXT"],
)  # fmt: skip
def test_no_variable_of_a_job_steers_the_engine(tmp_path: Path, name: str) -> None:
    with pytest.raises(FilesFailed, match=name):
        Engine.variables({name: "/tmp/evil.so:\n"})
    asked = assignment("a:1", "true", image="localhost/shell:1")
    Engine("podman", ("podman",)).run(asked, tmp_path, {name: "one line"})
    assert (tmp_path / "environment").read_text() == f"{name}=one line\n"
    assert Engine.variables({name: "one line"}).get(name) != "one line"


def _pulled_with(folder: Path, name: str, login: RegistryLogin | None, image: str) -> list[str]:
    """Return for which hosts an engine is given a login as it pulls."""
    program = folder / name
    program.write_text(
        "#!/bin/sh\n"
        "for word; do case $word in\n"
        f"--config=*) cp ${{word#*=}}/config.json {folder}/seen;;\n"
        f"--authfile=*) cp ${{word#*=}} {folder}/seen;;\n"
        "inspect) exit 1;;\n"
        "esac; done\n"
    )
    program.chmod(0o755)
    asked = assignment("a:1", "true", image=image, registry=login)

    async def pull() -> None:
        engine = await find_engine(str(program))
        assert engine is not None
        await engine.pull(asked, folder)

    asyncio.run(pull())
    assert not (folder / "login").exists()
    seen = folder / "seen"
    return list(json.loads(seen.read_text())["auths"]) if seen.exists() else []


@pytest.mark.parametrize("name", ["podman", "docker"])
@pytest.mark.parametrize("image", ["evil.example/x", "registry.example/x", "x"])
def test_a_login_is_for_its_own_host_whatever_the_image(
    tmp_path: Path, name: str, image: str
) -> None:
    login = RegistryLogin("robot", "hidden", "registry.example")
    assert _pulled_with(tmp_path, name, login, image) == ["registry.example"]


@pytest.mark.parametrize(
    ("name", "key"), [("podman", "docker.io"), ("docker", "https://index.docker.io/v1/")]
)
@pytest.mark.parametrize("host", ["docker.io", "index.docker.io", "https://index.docker.io/v1/"])
def test_the_login_of_docker_s_own_registry_is_where_its_engine_looks(
    tmp_path: Path, name: str, key: str, host: str
) -> None:
    assert _pulled_with(tmp_path, name, RegistryLogin("robot", "hidden", host), "x/y") == [key]


def test_a_login_that_names_no_host_is_for_none(tmp_path: Path) -> None:
    login = RegistryLogin("robot", "hidden")
    assert _pulled_with(tmp_path, "podman", login, "registry.example/x") == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Error: reading manifest 9 in r.test/x: manifest unknown", "image_missing"),
        ("Error response from daemon: manifest for x:9 not found", "image_missing"),
        ("Error: unauthorized: authentication required", "image_denied"),
        ("pull access denied for x, repository does not exist", "image_denied"),
        ("pinging registry r.test: connect: connection refused", "worker_failed"),
    ],
)
def test_what_an_engine_says_of_an_image_is_whose_failure(said: str, reason: str) -> None:
    assert _judged("r.test/x:9", said)[0] == reason
