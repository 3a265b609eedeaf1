"""Campaigns: which worlds they run, and what becomes of those that break a law."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.sim import main as bench
from roost.sim.campaign.running import Ran, Tally, Task, drawn_seeds
from roost.sim.world import Verdict


def test_a_text_stands_for_the_same_seeds_every_time_and_for_others_than_another() -> None:
    seeds = drawn_seeds("6fd213521cb3998e3d951ce18280be4146bd55e3", 60)
    assert seeds == drawn_seeds("6fd213521cb3998e3d951ce18280be4146bd55e3", 60)
    assert seeds[:20] == drawn_seeds("6fd213521cb3998e3d951ce18280be4146bd55e3", 20)
    assert len(set(seeds)) == 60
    assert not set(seeds) & set(drawn_seeds("6fd213521cb3998e3d951ce18280be4146bd55e4", 60))


def test_no_drawn_seed_is_one_that_every_campaign_runs() -> None:
    assert min(drawn_seeds("", 1000)) >= 10**6


def test_the_benchmark_counts_the_worlds_that_break_a_law_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_tasks(tasks: list[Task], **given: object) -> Tally:
        tally = Tally()
        for task in tasks:
            broken = "a law" if task.seed in (3, 5) else ""
            tally.add(Ran(task, Verdict(task.seed, 10, 1, 1, "", 1.0, broken), 1.0))
        return tally

    monkeypatch.setattr(bench, "run_tasks", run_tasks)
    output = tmp_path / "sim.json"
    assert bench.main(["--short", "--only", "campaign", "--output", str(output)]) == 1
    rows = {row["row"]: row for row in msgspec.json.decode(output.read_bytes())}
    violations = rows["campaign: violations"]
    assert (violations["value"], violations["note"]) == (2, "seed-3, seed-5")
    assert rows["campaign: events"]["value"] == 240
