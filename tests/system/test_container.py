"""The shipped recipe of a container image: built with podman, and a control plane run from it."""

import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.cli.installed import plain_install
from roost.base.cachefolder import cache_folders
from tests.images import LIMITS, Podman, base_files, put_into_wheel
from tests.system.processes import eventually, free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
USER = "10001:10001"


@pytest.fixture
def podman() -> Iterator[Podman]:
    made = Podman()
    try:
        yield made
    finally:
        made.reset()


def build(podman: Podman, folder: Path) -> str:
    """Build the shipped recipe from what this machine has, and return the image's name."""
    base, wheels = folder / "base", folder / "wheels"
    wheels.mkdir()
    base_files(base)
    for name in plain_install():
        put_into_wheel(name, wheels, ROOT / "src" / "roost" if name == "roost" else None)
    tar = folder / "base.tar"
    subprocess.run(["tar", "-C", base, "-cf", tar, "."], check=True)
    podman("import", tar, "localhost/base:1")
    shutil.rmtree(base)
    tar.unlink()
    arguments = {
        "BASE": "localhost/base:1", "ROOST": "roost", "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/wheels", "WARM": "no",
    }  # fmt: skip
    words = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
    podman(
        "build", "--tag", "localhost/roost:1", "--network", "host", "--layers=false", *LIMITS,
        "--volume", f"{wheels}:/wheels:ro", *words,
        "--file", ROOT / "deploy/container/Containerfile", ROOT,
    )  # fmt: skip
    return "localhost/roost:1"


def certificate(folder: Path) -> Path:
    """Make a certificate for loopback that the user of the image may read."""
    folder.mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    (folder / "key.pem").chmod(0o644)
    return folder


@pytest.mark.turns(4)
def test_the_image_is_built_and_runs_a_control_plane(podman: Podman, tmp_path: Path) -> None:
    image = build(podman, tmp_path)
    settings = json.loads(podman("image", "inspect", image).stdout)[0]["Config"]
    assert settings["User"] == USER
    assert settings["StopSignal"] == "SIGTERM"
    tls = certificate(tmp_path / "tls")
    port = free_port()
    # What is compiled here already is used there: the sources are the same.
    kept = tmp_path / "cache"
    shutil.copytree(
        next(iter(cache_folders())), kept, ignore=shutil.ignore_patterns("debian*", "guest*")
    )
    subprocess.run(["chown", "-R", USER, kept], check=True)
    command = settings["Cmd"]
    command[command.index("0.0.0.0:7070")] = f"127.0.0.1:{port}"
    podman(
        "run", "--detach", "--name", "roost", "--network", "host", *LIMITS,
        "--volume", f"{tls}:/etc/roost:ro", "--volume", f"{kept}:/var/cache/roost", image, *command,
    )  # fmt: skip

    url = f"https://127.0.0.1:{port}/readyz"
    trusted = ssl.create_default_context(cafile=str(tls / "cert.pem"))

    def is_ready() -> bool:
        try:
            return httpx.get(url, verify=trusted, timeout=5).status_code == 200
        except httpx.TransportError:
            running = podman("inspect", "--format", "{{.State.Running}}", "roost").stdout
            assert running.strip() == "true", podman("logs", "roost").stderr
            return False

    eventually("the control plane in the container is ready", is_ready, every_s=0.5)
    assert podman("exec", "roost", "roost", "doctor").stdout.splitlines()[-1] == "all is well"
    # It decides, by what was compiled before.
    refused = podman(
        "exec", "roost", "roost", "place", "--cpu", "1", "--memory", "1GiB", check=False
    )
    assert (refused.returncode, "no_available_agents" in refused.stdout) == (1, True), refused
    podman("stop", "--time", "60", "roost")
    ended = podman("inspect", "--format", "{{.State.ExitCode}}", "roost").stdout.strip()
    assert ended == "0", podman("logs", "roost").stderr
