"""A host that was dead is switched on: what was recovered elsewhere does not run there again."""

from roost.agent.reconciler import Reconciler
from roost.sim.histories.history import Action, History
from roost.sim.world import Verdict, run_history


def switched_on() -> Verdict:
    """Recover the VM of a dead host, as an operator would, and let that host come back.

    Its agent reaches no control plane at first, and has a list by which the VM is its own.
    """
    actions = [
        Action(0.0, "create", "vm0", {"cpu": 1}),
        Action(10.0, "power_off", "h0", {"for": 110.0}),
        Action(60.0, "confirm_dead", "h0"),
        Action(70.0, "recover_host", "h0"),
        Action(100.0, "cut", "h0", {"up": True, "down": True, "for": 50.0}),
        Action(200.0, "create", "vm1", {"cpu": 1}),
    ]
    return run_history(History(1, hosts=3, planes=1, calm_s=300.0, actions=actions))


def test_a_vm_that_was_recovered_does_not_run_on_its_old_host_again() -> None:
    verdict = switched_on()
    assert verdict.broken == ""
    assert verdict.coverage["commit.vm.recovered"] == 1


def test_the_law_sees_a_host_that_starts_what_it_remembers(monkeypatch) -> None:
    monkeypatch.setattr(Reconciler, "await_list", lambda self: None)
    assert "is booted on h0" in switched_on().broken
