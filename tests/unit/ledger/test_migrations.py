"""A revision that others may have run is never edited again: its digest is held here.

Whoever needs another schema adds a revision. When it is done, its line is added here; a line that
is there does not change. The forms of 0003 and 0006 that ledgers have met before they were frozen
are mended by 0007.
"""

from hashlib import sha256
from pathlib import Path
from subprocess import run

from alembic.script import ScriptDirectory

from roost.ledger import migrations
from roost.ledger.upgrade.migrate import _revisions, configuration
from tests.system.history import REPOSITORY, give_up
from tests.system.test_upgrades import NEVER_ALONE, RELEASES

FROZEN = {
    "0001_first_schema.py": "fa034c50f7bf9654",
    "0002_moves.py": "f854e6b974edf027",
    "0003_doubts.py": "3cf74174e4f89743",
    "0004_claims_by_vm.py": "18fa84a01bcccaa8",
    "0005_vm_specs.py": "5ce91192fcf3725e",
    "0006_fewer_claim_indexes.py": "de7e960285d17c65",
    "0007_sealing.py": "77d3c89cd1a4b34e",
    "0008_folded_events.py": "6c03790d79849090",
    "0009_copies_restart.py": "63db1987b5987357",
    "0010_constraints.py": "ef184cc138a8a729",
    "0011_holds.py": "6ba3bd6f02c8d641",
    "0012_policies.py": "445ef6afed928faf",
    "0013_dynamic_rules.py": "8985ec5c40d44d28",
    "0014_violations.py": "13c1bca8cad56b11",
    "0015_reservations.py": "9b2ff472efe09eb9",
    "0016_preemption.py": "94fce5614af053e2",
    "0017_owners_of_holds.py": "ff6896cc3e3d509c",
    "0018_release_before.py": "67ffa2d9d80a0029",
    "0019_plans.py": "d8daa282d9f894f0",
    "0020_mix.py": "5672a6a1771ad0aa",
    "0021_jobs.py": "e399c77ad978fe3a",
    "0022_flavors.py": "13ad723dcb95ef6b",
    "0023_weights.py": "4701da1ebf2a16a0",
    "0024_plan_moves_ended.py": "1cb9a4070733f6de",
    "0025_host_settings.py": "594e55be27c3db65",
    "0026_event_search.py": "cbc99120643277ad",
    "0027_traffic.py": "8bc70a5da72fbacd",
    "0028_lifetimes.py": "b9cca1b153e4ec15",
    "0029_counters_held.py": "8c6280aafb7acff3",
    "0030_release_before.py": "8d717adfe5c0032b",
    "asked_bodies.py": "931e0832c5e6be3d",
}


def digests() -> dict[str, str]:
    """Return the digest of every revision, and of what they share, by file name."""
    folder = Path(migrations.__file__).parent
    files = [*(folder / "versions").glob("[0-9]*.py"), folder / "asked_bodies.py"]
    return {path.name: sha256(path.read_bytes()).hexdigest()[:16] for path in files}


def test_revisions_stay_as_they_were_when_they_were_frozen() -> None:
    found = digests()
    assert found == FROZEN, "a revision was edited, or a new one has no line yet"


def test_revisions_follow_each_other_without_a_branch() -> None:
    names = sorted(name[:4] for name in FROZEN if name[0] == "0")
    assert names == [f"{number:04d}" for number in range(1, len(names) + 1)]


def test_upgrades_are_tried_from_every_revision_but_the_newest() -> None:
    tried = {release.schema[:4] for release in RELEASES}
    revisions = {name[:4] for name in FROZEN if name[0] == "0"}
    assert not tried & NEVER_ALONE
    assert tried | NEVER_ALONE == revisions - {max(revisions)}, "one has no row"


def test_releases_that_upgrades_are_tried_from_are_in_the_history() -> None:
    def git(*words: str) -> int:
        return run(["git", *words], cwd=REPOSITORY, capture_output=True, check=False).returncode

    if git("cat-file", "-e", RELEASES[0].commit):
        give_up("the history of the repository is not at hand")
    gone = [each for each in RELEASES if git("merge-base", "--is-ancestor", each.commit, "HEAD")]
    assert gone == []


def test_a_revision_is_called_what_its_file_is() -> None:
    # A ledger at the newest is opened without Alembic, by the names of files alone.
    scripts = ScriptDirectory.from_config(configuration())
    assert {each.revision for each in scripts.walk_revisions()} == _revisions()
    assert scripts.get_current_head() == max(_revisions())
