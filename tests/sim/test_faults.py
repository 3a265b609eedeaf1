"""Where faults strike is counted by site, and what was never tried is named."""

from functools import partial

from roost.sim.faults.kinds import FAULTS, coverage_table, is_fault, site_of
from roost.sim.histories.draws import draw_history
from roost.sim.world import run_history


class Reconciler:
    def change(self):
        return lambda: None


def test_a_site_is_the_function_that_made_the_change() -> None:
    made = Reconciler().change()
    assert site_of(made) == f"{__name__}.Reconciler.change"
    assert site_of(partial(made)) == site_of(made)
    assert site_of(Reconciler().change) == f"{__name__}.Reconciler.change"


def test_the_table_names_what_never_fired_and_where_nothing_did() -> None:
    coverage = {
        "fault.db_doubt": 3,
        "fault.db_doubt@commit:control.intake.Intake.flush": 3,
        "at@commit:control.intake.Intake.flush": 70,
        "at@commit:control.singleton.Singleton.tick": 9,
        "commit.vm.created": 4,
    }
    table = coverage_table(coverage)
    assert "fault.db_doubt" not in table.never
    assert set(table.never) == set(FAULTS) - {"fault.db_doubt"}
    assert table.untouched == ["commit:control.singleton.Singleton.tick"]
    assert "db_doubt 3" in "\n".join(table.lines())


def test_a_world_counts_each_fault_once_and_where_it_struck() -> None:
    coverage = run_history(draw_history(2)).coverage
    struck = {kind for kind in coverage if is_fault(kind) and "@" not in kind}
    assert struck
    for kind in struck:
        sites = [count for key, count in coverage.items() if key.startswith(f"{kind}@")]
        assert sum(sites) == coverage[kind]
    assert struck <= set(FAULTS)
