"""The how-to pages are true: every command line of theirs is run, in order, against a real server.

The server and the agents are processes, as the pages start them; the commands run in this one,
because to start each as a process would cost a minute of CPU. What is not run here is named with
the reason, so a line that is added to a page is run.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from roost.cli.main import run
from tests.system.processes import Site, eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "how-to"
#: Timers short enough to wait for a dead host, and long enough for a busy machine.
TIMERS = {"heartbeat_s": 1, "suspect_s": 5, "offline_s": 10, "lease_s": 12}


@dataclass(frozen=True)
class Page:
    """What a page takes for granted, and how its commands end when that is not with 0."""

    name: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    #: Words of a line, and what they stand for here: text, or the server's name for the newest.
    stands_for: dict[str, str] = field(default_factory=dict)
    #: How a line that begins so ends.
    ends_with: dict[str, int] = field(default_factory=dict)
    #: Lines that begin so are not run, for a reason.
    left_out: dict[str, str] = field(default_factory=dict)
    #: Whether its blocks of text are what is printed, and not one example of it.
    says: bool = False


def lines_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command line of a page's indented blocks, and the text that follows it."""
    text = re.sub(r"\\\n\s*", " ", page)
    command, printed, inside = "", [], False
    for line in text.splitlines():
        found = re.match(r"\s{4,}(?:TOKEN=\$\()?((?:[A-Z_]+=\S+ )?roost .*?)\)?$", line)
        if found and not inside:
            if command:
                yield command, printed
            command, printed = found[1].split(" #")[0].strip(), []
        elif line.startswith("```"):
            inside = line == "```text"
        elif inside and line.strip():
            printed.append(line)
    if command:
        yield command, printed


STARTED = "the server and the agents are started as processes before"
GUEST = "needs a real guest: tests/system/test_qemu_life.py"
CLOUD = "needs a cloud: tests/system/test_jobs_on_ec2.py"
NO_CELLS = "no virtual host has any: tests/integration/control/test_reserved_counters.py"
ENDLESS = "goes on until it is stopped: tests/unit/cli/test_watching.py"
ELSEWHERE = "asks a machine that is only an example"
SMALL = "--cpu 1 --memory 1GiB"
NEXT_YEAR = str(datetime.now(UTC).year + 1)
#: Started by every page that begins with them.
MEASURED = "needs agents with probe ports: tests/system/test_measure.py"
SERVICES = {"roost serve": STARTED, "roost agent": STARTED}

RUN = (
    Page(
        "run-vms",
        ends_with={"roost vm migrate web-1 --cancel": 4},  # it has moved by then
        left_out=SERVICES | {
            "roost vm create web-1 --cpu 1 --memory 512MiB": GUEST, "roost vm console": GUEST,
            "roost vm show db-1 --watch": ENDLESS, "roost events --follow": ENDLESS,
        },
    ),
    Page(
        "group-vms",
        before=tuple(f"roost vm create old-{at} {SMALL} --zone {at}" for at in "bc"),
        stands_for={"old-1 old-2": "old-b old-c", "old-2": "old-c", "4GiB": "4GiB --zone a"},
        ends_with={
            # The same VM once more: its zone is taken by itself.
            "roost vm create web-1 --cpu 2 --memory 4GiB --group 'web": 6,
            "roost group delete web": 4, "roost group delete web --force": 0,
        },
    ),
    Page(
        "drain-a-host",
        before=(f"roost vm create web-1 {SMALL} --pin h-01", "roost vm set web-1 --unpin"),
        stands_for={"'ssh $ROOST_HOST apt-get -y upgrade'": "true", "./reboot-and-wait": "true",
                    "--host h-03": "--host h-03 --wait"},
    ),
    Page("explain-a-refusal", ends_with={"roost place": 1}, says=True),
    Page("plan-capacity", says=True),
    Page(
        "dead-host",
        before=(f"roost vm create web-1 {SMALL} --pin h7 --wait", "roost vm set web-1 --unpin"),
        stands_for={"h9": "h7"},
        after=("roost host delete h7",),
        ends_with={"roost vm recover": 4},  # it has been, with its host
        left_out=SERVICES,
    ),
    Page("join-a-host", left_out=SERVICES),
    Page("apply-files", ends_with={"roost diff": 1}),
    Page("priorities"),
    Page("policies", before=(f"roost vm create db-1 {SMALL}",)),
    Page(
        "reserve-capacity",
        stands_for={"2026": NEXT_YEAR},
        left_out={
            "roost reservation create database": NO_CELLS,
            "roost reservation create render": NO_CELLS,
        },
    ),
    Page("why-a-vm-waits", left_out={"roost vm show db-1 --watch": ENDLESS}),
    Page("plan-migrations", before=(f"roost vm create web-1 {SMALL} --wait",), left_out=SERVICES),
    Page(
        "describe-the-network",
        before=(
            f"roost vm create web-1 --project shop {SMALL}",
            f"roost vm create db-1 --project shop {SMALL}",
            f"roost vm create db-1 {SMALL} --pin h1",
            "roost group create caches affinity host soft",
            f"roost vm create cache-1 {SMALL} --group caches --pin h1",
        ),
        left_out=SERVICES
        | {
            "roost topology measure": MEASURED,
            "roost topology apply measured.yaml": MEASURED,
        },
    ),
    Page("upgrade"),
    Page(
        "back-up-and-restore",
        stands_for={
            "$(date +%F)": "today", "/backup": "backup", "/elsewhere": "elsewhere",
            "roost backup": "roost backup --data plane",
            "roost key export elsewhere": "roost key export --data plane elsewhere/second-",
            "roost restore": "roost restore --data restored",
            "restored backup/roost.copy --key": "restored-again backup/roost.copy --key",
        },
        left_out={
            "roost backup /backup/roost.copy --database": ELSEWHERE,
            "roost host adopt-held": "needs a restored server: tests/integration/control",
            "roost host destroy-held": "needs a restored server: tests/integration/control",
        },
    ),
    Page(
        "run-a-control-plane",
        left_out=SERVICES | {"ROOST_CA_FILE=/etc/roost/cert.pem": ELSEWHERE},
    ),
    Page("analysis", before=(f"roost vm create web {SMALL} --wait",)),
    Page(
        "jobs",
        files={"items": "1\n2\n", "sim.py": "import sys; print(sys.argv)"},
        stands_for={"sim.py": "FOLDER/sim.py"},
        left_out={
            "roost pool create batch --provider aws": CLOUD, "roost account create": CLOUD,
            "roost job kind create": CLOUD, "roost job submit --kind": CLOUD,
        },
    ),
)  # fmt: skip

#: Pages whose commands another test runs, or whose parts are not here.
OTHERS = {
    "rules": "tests/integration/control/test_rules_page.py",
    "use-from-python": "tests/system/test_python_page.py",
    "kubernetes": "tests/kube", "run-real-vms": GUEST, "images": GUEST, "providers": CLOUD,
    "run-in-production": "tests/system/test_production_page.py",
    "simulate-faults": "tests/sim",
}  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Give the pages the server and the hosts that they speak of."""
    made = Site(tmp_path_factory.mktemp("pages"))
    (made.folder / "examples").symlink_to(ROOT / "examples")
    for name in ("backup", "elsewhere", "shop"):
        (made.folder / name).mkdir()
    pages = (("shop/all.yaml", "apply-files"), ("network.yaml", "describe-the-network"))
    for file, page in pages:
        text = (PAGES / f"{page}.md").read_text()
        first = re.search(r"(?:^    .*\n)+", text, re.MULTILINE)
        assert first is not None
        (made.folder / file).write_text(re.sub("^    ", "", first[0], flags=re.MULTILINE))
    try:
        server = made.serve(**TIMERS)
        made.hosts("h", server, count=6, zone="a,b,c", disk="500GiB", wait=False)
        for name in ("h1", "h7", "h9", "hv-01"):
            made.hosts(name, server, wait=False)
        made.hosts("h2", server, cpu="128", memory="512GiB", wait=False)
        made.hosts("gpu", server, cpu="64", memory="512GiB", gpu="a100:8", wait=False)
        made.wait_online(server, "", 12)
        for name in ("shop", "books", "ml"):
            assert made.roost("project", "create", name).returncode == 0
        yield made
    finally:
        made.end()


def typed(line: str, printed: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command line here, up to a pipe, and return how it ended and what it said."""
    words = shlex.split(line)
    words = words[: words.index("|")] if "|" in words else words
    code = run(words[words.index("roost") + 1 :])
    said = printed.readouterr()
    return code, said.out, said.err


def typed_in_peace(line: str, printed: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command line, again while the host that a VM has left has yet to forget it."""

    def said() -> tuple[int, str, str] | None:
        found = typed(line, printed)
        return None if "has not cleaned up yet" in found[2] else found

    return eventually(line, said, every_s=0.5)


def filled_in(line: str, page: Page, site: Site) -> str:
    """Return a line with what its words stand for."""
    with site.client(site.server) as client:
        if " PLAN" in line:
            line = line.replace("PLAN", client.list_plans(limit=1).plans[0].id)
        if " JOB" in line:
            line = line.replace("JOB", client.list_arrays().arrays[0].id)
    for word, meant in page.stands_for.items():
        line = line.replace(word, meant)
    return line.replace("FOLDER", str(site.folder))


def test_no_page_is_forgotten() -> None:
    there = {page.stem for page in PAGES.glob("*.md")}
    assert {page.name for page in RUN} | set(OTHERS) == there
    assert not {page.name for page in RUN} & set(OTHERS)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_what_a_page_says_to_type_works(
    page: Page, fleet: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROOST_CONTEXT", str(fleet.context))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(fleet.folder)
    clear(fleet)
    for name, text in page.files.items():
        (fleet.folder / name).write_text(text)
    for line in page.before:
        assert typed(line, capsys)[0] == 0, line
    if page.name == "dead-host":
        lose(fleet, "h7")
    unused = set(page.left_out) - set(SERVICES)
    for line, printed in lines_of((PAGES / f"{page.name}.md").read_text()):
        if passed := [start for start in page.left_out if line.startswith(start)]:
            unused.difference_update(passed)
            continue
        code, out, err = typed_in_peace(filled_in(line, page, fleet), capsys)
        starts = [start for start in page.ends_with if line.startswith(start)]
        wanted = page.ends_with[max(starts, key=len)] if starts else 0
        assert code == wanted, f"{line}: {out}{err}"
        if page.says and "|" not in line:
            there = [each.split() for each in out.splitlines()]
            for each in printed:
                assert each.split() in there or "─" in each, f"{line}: {each!r} is not in\n{out}"
    for line in page.after:
        assert typed(line, capsys)[0] == 0, line
    assert not unused, "these lines are not on the page any more"


def lose(site: Site, name: str) -> None:
    """Kill the agent of a host, and wait until the server has missed it."""
    next(each for each in site.processes if getattr(each, "name", "") == name).kill()
    with site.client(site.server) as client:
        eventually(f"{name} is offline", lambda: client.get_host(name).health == "offline")


def clear(site: Site) -> None:
    """Delete what the page before has created, and open the hosts."""
    with site.client(site.server) as client:
        for each in client.list_reservations().reservations:
            client.delete_reservation(each.name)
        for vm in client.all_vms():
            client.delete_vm(vm.id)
        eventually("all VMs are gone", lambda: not list(client.all_vms()))
