"""Run commands as processes, check what they print, and report their CPU time."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cli.canned import serve, wanted
from benchmarks.cli.installed import plain_install
from benchmarks.cli.starting import first_start
from benchmarks.results import Result, at_most

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "cli.json"
COUNT = 10_000
ROUNDS = 3
APPLIED = 1_000
#: Row, command, goal in seconds of CPU.
ROWS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("cli start: CPU", ("--version",), 0.1),
    ("vm list 10k: CPU", ("vm", "list"), 1.0),
    ("vm list 10k -o json: CPU", ("vm", "list", "-o", "json"), 0.5),
    ("vm list 10k -o name: CPU", ("vm", "list", "-o", "name"), 0.5),
)


def environment(server: str, bytecode: str) -> dict[str, str]:
    """Return the variables of a command that finds its bytecode, as after its first run anywhere.

    A machine that forbids Python to write it would have every command compile all that it imports.
    """
    kept = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "ROOST_SERVER": server, "ROOST_TOKEN": "roost_none", "PYTHONPYCACHEPREFIX": bytecode
    }  # fmt: skip


def cpu_of(command: Sequence[str], environment: dict[str, str]) -> tuple[float, str]:
    """Return the CPU time of a command and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [Path(sys.executable).with_name("roost"), *command],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def check(command: Sequence[str], printed: str) -> None:
    """Raise AssertionError unless a list has every VM."""
    if "json" in command:
        assert len(json.loads(printed)["vms"]) == COUNT
    elif "list" in command:
        names = {line.split()[0] for line in printed.splitlines()}
        assert len(names & {f"app-{number:05}" for number in range(COUNT)}) == COUNT


def _apply(bytecode: str) -> Result:
    """Measure an apply of VMs that are all as the file says."""
    server = serve(APPLIED)
    host, port = server.server_address[:2]
    variables = environment(f"http://{host!s}:{port}", bytecode)
    best = float("inf")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "vms.yaml"
        file.write_text(wanted(APPLIED))
        for _ in range(ROUNDS):
            spent, printed = cpu_of(("apply", "-f", str(file)), variables)
            assert f"0 to delete, {APPLIED} unchanged" in printed, printed
            best = min(best, spent)
    server.shutdown()
    row = f"apply {APPLIED:,} VMs unchanged"
    print(f"{row:<30} {best:6.2f} s  goal 1.0", flush=True)
    return at_most(row, best, "s", 1.0)


def whole_installs() -> list[Result]:
    """Measure what somebody meets first: the size of an install, and its first start."""
    size_mb = sum(plain_install().values()) / 1e6
    made = [
        at_most("install size", size_mb, "MB", 300.0),
        at_most("first start: until ready", first_start(), "s", 10.0),
    ]
    for each in made:
        print(f"{each.row:<30} {each.value:6.1f} {each.unit}  goal {each.goal}", flush=True)
    return made


def main() -> int:
    """Measure every row, print the table, write the JSON file; 1 if a goal is missed."""
    server = serve(COUNT)
    host, port = server.server_address[:2]
    results: list[Result] = []
    with TemporaryDirectory(prefix="roost-bytecode-") as bytecode:
        variables = environment(f"http://{host!s}:{port}", bytecode)
        for row, command, goal in ROWS:
            cpu_of(command, variables)  # writes the bytecode of what it imports
            best = float("inf")
            for _ in range(ROUNDS):
                spent, printed = cpu_of(command, variables)
                check(command, printed)
                best = min(best, spent)
            results.append(at_most(row, best, "s", goal))
            print(f"{row:<30} {best:6.2f} s  goal {goal}", flush=True)
        server.shutdown()
        results.append(_apply(bytecode))
    results += whole_installs()
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"row": each.row, "value": each.value, "goal": each.goal} for each in results]
    OUTPUT.write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if any(each.met is False for each in results) else 0
