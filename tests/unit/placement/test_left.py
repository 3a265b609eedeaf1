"""What is left of rules is folded once, however often rules change, and kept within bounds."""

from dataclasses import replace

import pytest

from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand
from roost.model.rules import Rule, RuleSet
from roost.placement.rules import left
from roost.placement.rules.binding import Binder
from roost.placement.rules.left import Remembered

RULES = (
    Rule("tier", 'vm.labels.tier != "db" || host.labels.disk == "nvme"'),
    Rule("zone", 'host.zone in ["a", "b"]'),
    Rule("night", "fleet.hour < 6 || host.vms < 3"),
    Rule("own", 'project.name == "shop" || host.rack != "r1"'),
)
VM = PlaceRequest("a", Demand(1000, 2**30, 0), project="shop", labels=(("tier", "db"),))


def asked(binder: Binder, request: PlaceRequest) -> list[str]:
    return [rule.text for rule in binder.bound(request, "least_loaded").terms.rules]


def test_each_vm_gets_what_is_left_for_it() -> None:
    binder = Binder(Fleet(), RuleSet(RULES), {"hour": 12})
    nvme, zone, few = 'host.labels.disk == "nvme"', 'host.zone in ["a", "b"]', "host.vms < 3"
    assert asked(binder, VM) == [nvme, zone, few]
    assert asked(binder, replace(VM, labels=(("tier", "web"),))) == [zone, few]
    assert asked(binder, replace(VM, project="x")) == [nvme, zone, few, 'host.rack != "r1"']
    night = Binder(Fleet(), RuleSet(RULES), {"hour": 3})
    assert asked(night, VM) == [nvme, zone]
    assert asked(Binder(Fleet(), RuleSet(RULES), {"hour": 13}), VM) == [nvme, zone, few]


def test_a_change_of_rules_folds_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    folded, real = [], left.fold

    def counted(*given):  # type: ignore[no-untyped-def]
        folded.append(given)
        return real(*given)

    monkeypatch.setattr(left, "_REMEMBERED", Remembered())
    monkeypatch.setattr(left, "fold", counted)
    asked(Binder(Fleet(), RuleSet(RULES), {"hour": 12}), VM)
    assert len(folded) == len(RULES)
    more = (*RULES, Rule("new", "host.vms < 9"))
    asked(Binder(Fleet(), RuleSet(more), {"hour": 12}), replace(VM, name="b"))
    assert len(folded) == len(RULES) + 1


def test_what_is_remembered_is_bounded_and_the_oldest_goes() -> None:
    kept, made = Remembered(2), []

    def make(key: str) -> None:
        kept.get(key, lambda: made.append(key))  # type: ignore[func-returns-value]

    for key in ("a", "b", "a", "c", "a", "b"):
        make(key)
    assert made == ["a", "b", "c", "b"]
    assert len(kept) == 2
