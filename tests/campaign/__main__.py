"""`python -m tests.campaign`: a run of any length by hand, as `make chaos-real` starts it.

Prints each fault when it comes and a table at the end; the exit code is 1 if a law was broken. Then
the folder stays, with the logs of all processes, the database of SQLite and the history.
"""

import argparse
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.campaign.campaign import PLANES, Run, Verdict

FOLDER = Path("build") / "chaos-real"
_MOST_TOLD = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0, help="of faults, on each database")
    parser.add_argument("--database", choices=[*PLANES, "both"], default="both")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when all is well")
    options = parser.parse_args()
    # So that whoever ends it ends what it started: guards outlive their agents on purpose.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    databases = list(PLANES) if options.database == "both" else [options.database]
    good = [_run(options, database) for database in databases]
    return 0 if all(good) else 1


def _run(options: argparse.Namespace, database: str) -> bool:
    seed, seconds = options.seed, options.seconds
    folder = (FOLDER / f"{database}-{seed}").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    again = f"make chaos-real SEED={seed} SECONDS={seconds:g} DATABASE={database}"
    _say(f"\n{again}    (in {folder})")
    run = Run(seed, seconds, database, folder, _say)
    try:
        verdict = run.run()
    except pytest.skip.Exception as missing:
        _say(f"{database} is left out: {missing}")
        return False
    finally:
        run.history.save(folder / "history.jsonl")
    for line in table(verdict):
        _say(line)
    for line in verdict.broken[:_MOST_TOLD]:
        _say(f"BROKEN  {line}")
    if verdict.broken:
        _say(f"again:  {again}\nlogs:   {folder}")
        return False
    if not options.keep:
        shutil.rmtree(folder)
    return True


def _say(words: str) -> None:
    print(words, flush=True)


def table(verdict: Verdict) -> list[str]:
    """Return how a run went, as lines to print."""
    answers = ("ok", "refused", "unknown")
    total: Counter[str] = Counter()
    lines = [f"{'requests':20}" + "".join(f"{answer:>9}" for answer in answers)]
    for what, counted in sorted(verdict.requests.items()):
        total += counted
        lines.append(f"  {what:18}" + "".join(f"{counted[answer]:9}" for answer in answers))
    lines.append(f"  {'all':18}" + "".join(f"{total[answer]:9}" for answer in answers))
    for title, found in (
        ("faults", verdict.faults),
        ("ended by themselves", verdict.ended),
        ("events", verdict.events),
    ):
        named = ", ".join(f"{name} {number}" for name, number in sorted(found.items()))
        lines.append(f"{title:20}{found.total():9}  {named}")
    lines.append(f"{'VMs at the end':20}{verdict.vms:9}")
    lines.append(f"{'looks at VM files':20}{verdict.looks:9}")
    lines.append(f"{'at rest after':20}{verdict.at_rest_s:9.1f} s")
    lines.append(f"{'violations':20}{len(verdict.broken):9}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
