"""The short run of the campaign with real processes; `make chaos-real` has runs of any length."""

import os
from pathlib import Path

import pytest

from tests.campaign.__main__ import table
from tests.campaign.campaign import Run

pytestmark = pytest.mark.slow

#: Draws in which hosts are gone long enough to be fenced, and control planes and database fail too.
SEEDS = {"sqlite": 54, "postgresql": 20}
SECONDS = 25.0


@pytest.mark.parametrize("database", SEEDS)
def test_every_promise_is_kept_through_faults_of_all_kinds(database: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("ROOST_SEED", SEEDS[database]))
    run = Run(seed, SECONDS, database, tmp_path, print)
    try:
        verdict = run.run()
    finally:
        run.history.save(tmp_path / "history.jsonl")
    print("\n".join(table(verdict)))
    assert not verdict.broken, "\n".join(verdict.broken)
    assert verdict.vms
    assert verdict.requests["create"]["ok"]
    assert verdict.faults.total() > 5
