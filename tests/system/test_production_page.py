"""docs/how-to/run-in-production.md is true: its shell lines are run, in order, as they stand.

A folder stands for the root of the machine, and this user for the page's. There is no systemd here:
`systemctl enable --now` reads the unit that the lines before have installed and starts what it
says, with its variables and its files of settings. What is not run is named with the reason.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from roost.base.cachefolder import cache_folders
from tests.prometheus import find_prometheus
from tests.system.processes import PATIENCE_S, Process, Site, eventually, free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "run-in-production.md"
HOST = "hv-01"

#: Lines that begin so are not run.
LEFT_OUT = {
    "python3 -m venv": "the environment of the tests stands for it",
    "/opt/roost-1/bin/pip install": "needs the package index: tests/system/test_container.py",
    "useradd": "changes the accounts of the machine",
    "runuser -u roost -- env": "five minutes where nothing was compiled before",
    "podman": "tests/system/test_container.py",
}


def blocks_of(page: str) -> list[str]:
    """Return the indented blocks of a page."""
    found = re.findall(r"(?:^    .*\n)(?:(?:^    .*)?\n)*", page + "\n", re.MULTILINE)
    return [re.sub(r"^    ", "", each, flags=re.MULTILINE).strip() for each in found]


SCRAPES = next(each for each in blocks_of(PAGE.read_text()) if each.startswith("scrape_configs"))


class Machine:
    """A folder that has what a machine has, and the services that run on it."""

    def __init__(self, site: Site) -> None:
        self.site, self.root, self.port = site, site.folder / "root", free_port()
        program = self.root / "opt" / "roost-1"
        for name in ("etc/systemd/system", "var/lib/roost", "var/lib/roost-agent", "var/cache"):
            (self.root / name).mkdir(parents=True)
        (program / "share" / "roost").mkdir(parents=True)
        (program / "bin").symlink_to(Path(sys.executable).parent)
        (program / "share" / "roost" / "deploy").symlink_to(ROOT / "deploy")
        # What is compiled here already is what the page would compile.
        compiled = next(iter(cache_folders()))
        compiled.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.root / "var/cache/roost").symlink_to(compiled)

    def here(self, text: str) -> str:
        """Return a text with the paths of this machine, and the address of its server."""
        text = re.sub(r"(?<![\w.])/(opt|etc|var)/", rf"{self.root}/\1/", text)
        text = re.sub(r"roost\.example:7070|0\.0\.0\.0:7070", f"127.0.0.1:{self.port}", text)
        url = f"sqlite:///{self.root}/var/lib/roost/roost.db"
        return text.replace("postgresql://roost@db.example/roost", url)

    def run(self, line: str) -> None:
        """Run a line of the page in the folder of the files that it names."""
        if line.startswith("systemctl enable --now "):
            self.start(line.split()[-1])
            return
        line = re.sub(r" (-o roost )?-g roost\b", "", self.here(line))
        if line.startswith("curl "):
            line = line.replace("curl ", "curl --fail --silent --max-time 10 --noproxy '*' ", 1)
            eventually(line, lambda: self._shell(line).returncode == 0, every_s=0.3)
            return
        done = self._shell(line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"

    def _shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-ec", line],
            cwd=self.site.folder, env=self.site.environment,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def start(self, name: str) -> Process:
        """Start what an installed unit says, as systemd would."""
        text = (self.root / f"etc/systemd/system/{name}.service").read_text()
        settings = re.findall(r"^(\w+)=(.*)$", self.here(text.replace("\\\n", "")), re.MULTILINE)
        variables = [value for key, value in settings if key == "Environment"]
        for file in (
            Path(value.lstrip("-")) for key, value in settings if key == "EnvironmentFile"
        ):
            if file.is_file():
                variables += file.read_text().splitlines()
        given = dict(each.split("=", 1) for each in variables)
        [command] = [value for key, value in settings if key == "ExecStart"]
        command = re.sub(r"\$(\w+)", lambda found: given[found[1]], command)
        words = shlex.split(
            command.replace("%H", HOST).replace("--driver qemu", "--driver virtual")
        )
        log = self.site.folder / f"{name}.log"
        process = Process(words, log, self.site.environment | given)
        self.site.processes.append(process)
        return process


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    site = Site(tmp_path)
    try:
        yield Machine(site)
    finally:
        site.end()


def make_certificate(folder: Path) -> None:
    """Make the certificate that the page takes for granted."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


def make_agent_settings(machine: Machine) -> None:
    """Write agent.env as the head of the agent's unit says, with a token for this host."""
    made = machine.site.roost("token", "join", "--host", HOST)
    assert made.returncode == 0, made.stderr
    head = (ROOT / "deploy/systemd/roost-agent.service").read_text()
    text = re.sub(r"^# *", "", head, flags=re.MULTILINE)
    named = dict(re.findall(r"^(ROOST_\w+)=(\S*)", text.partition("[Unit]")[0], re.MULTILINE))
    assert list(named) == [
        "ROOST_SERVER", "ROOST_CA_FILE", "ROOST_JOIN_TOKEN", "ROOST_AGENT_OPTIONS",
    ]  # fmt: skip
    named["ROOST_CA_FILE"] = named["ROOST_CA_FILE"].replace("ca.pem", "cert.pem")
    named["ROOST_JOIN_TOKEN"] = made.stdout.strip()
    named["ROOST_AGENT_OPTIONS"] = "--zone a --rack r1 --cpu 4 --memory 8GiB --disk 10GiB"
    lines = (f"{name}={machine.here(value)}\n" for name, value in named.items())
    (machine.site.folder / "agent.env").write_text("".join(lines))


def test_the_lines_of_the_page_make_a_server_with_a_host(machine: Machine) -> None:
    for program in ("openssl", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install {program}")
    make_certificate(machine.site.folder)
    context = machine.root / "var/lib/roost/context.json"
    machine.site.environment["ROOST_CONTEXT"] = str(context)
    unused = set(LEFT_OUT)
    for block in blocks_of(PAGE.read_text()):
        for line in () if block == SCRAPES else block.splitlines():
            if passed := {start for start in LEFT_OUT if line.startswith(start)}:
                unused -= passed
                continue
            if "agent.env" in line:
                make_agent_settings(machine)
            machine.run(line)
    assert not unused, "these lines are not on the page any more"
    key = machine.root / "etc/roost/key.pem"
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o640, 0o750)
    assert (machine.root / "etc/roost/agent.env").stat().st_mode & 0o777 == 0o600

    def online() -> bool:
        listed = machine.site.roost("host", "list", "--no-headers")
        return listed.stdout.split()[:2] == [HOST, "online"]

    eventually(f"{HOST} is online", online, every_s=0.5)
    assert machine.site.roost("doctor").stdout.splitlines()[-1] == "all is well"
    assert (machine.root / "var/lib/roost/admin-token").stat().st_mode & 0o777 == 0o600
    assert (machine.root / "var/lib/roost/roost.db").is_file()


def test_prometheus_takes_the_settings_of_the_page(tmp_path: Path) -> None:
    promtool = find_prometheus().with_name("promtool")
    file = tmp_path / "prometheus.yml"
    file.write_text(SCRAPES)
    for rules in yaml.safe_load(SCRAPES)["rule_files"]:
        shutil.copy(ROOT / "deploy" / "prometheus" / rules, tmp_path)
    words = [str(promtool), "check", "config", str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rule files found" in done.stdout
