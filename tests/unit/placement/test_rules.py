"""Rules in the engine: what binds whom, on every path, and what is said about it."""

from collections.abc import Mapping
from dataclasses import replace
from time import process_time

import pytest

from roost.base.errors import RoostError
from roost.base.units import GIB
from roost.fleet.check import check
from roost.model.constraints import NO_CONSTRAINTS, Constraints, LabelOperator, LabelTerm
from roost.model.flow import FixKind, Placement, PlaceRequest, Rejection
from roost.model.hosts import Scope
from roost.model.reasons import Reason
from roost.model.resources import Demand
from roost.model.rules import Rule, RuleScope, RuleSet
from roost.placement import engine as engine_module
from roost.placement.capacity import capacity
from roost.placement.engine import Engine
from roost.placement.explain import explain
from roost.placement.group import place_group
from roost.placement.replay import record, replay
from roost.placement.rules import binding, columns, left
from roost.placement.rules.columns import ERROR, FAILS, HOLDS
from roost.placement.rules.folding import with_fields
from roost.placement.strategies import SCORE_ONE, STRATEGIES
from roost.placement.verdicts import MOST_PARTS
from roost.rules.evaluating import evaluate
from roost.rules.parsing import parse
from roost.rules.syntax import Expr
from tests.builders import fleet_of, host

DATABASES = Rule("databases-apart", 'vm.labels.role != "db" || host.labels.tier == "db"')
ROOM = Rule("room", 'host.free.memory >= quantity("8Gi")')
FEW = Rule("few", "host.vms < 2")
HOMES = {"a": "db", "b": "web", "c": "web"}


def labelled(name: str, tier: str, memory: int = 16 * GIB):
    return host(name, memory_bytes=memory, labels=(("tier", tier),))


def asked(name: str = "vm", role: str = "db", memory: int = GIB, **more: object) -> PlaceRequest:
    return PlaceRequest(name, Demand(1000, memory), labels=(("role", role),), **more)


def ruled(*rules: Rule, hosts=None) -> Engine:
    hosts = hosts or (labelled("a", "web"), labelled("b", "db"), labelled("c", "db"))
    return Engine(fleet_of(*hosts), rules=RuleSet(rules, 1))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_hard_rule_holds_for_every_strategy(strategy: str) -> None:
    engine = ruled(DATABASES)
    assert engine.find(asked(strategy=strategy)).host in ("b", "c")
    names = {engine.find(asked(f"v{n}", "web", strategy=strategy), cursor=n).host for n in range(3)}
    assert names & {"a", "b", "c"}


def test_the_rules_can_be_replaced() -> None:
    engine = ruled(DATABASES)
    before = engine.fleet.version
    engine.set_rules(RuleSet((), 2))
    assert engine.find(asked()).host == "a"
    assert engine.fleet.version > before
    engine.set_rules(RuleSet((DATABASES,), 3))
    assert engine.find(asked()).host == "b"


def test_a_changed_label_counts_at_once() -> None:
    engine = ruled(DATABASES)
    assert engine.find(asked()).host == "b"
    engine.fleet.set_labels("a", (("tier", "db"),))
    assert engine.find(asked()).host == "a"
    engine.fleet.set_labels("a", ())
    assert engine.find(asked()).host == "b"


def test_after_a_changed_label_one_host_alone_is_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def noted(expr: Expr, known: Mapping[str, object], *given: object) -> object:
        judged.append(known["host"]["name"])  # type: ignore[index]
        return evaluate(expr, known, *given)  # type: ignore[arg-type]

    judged: list[str] = []
    monkeypatch.setattr(columns, "evaluate", noted)
    apart = Rule("apart", 'host.name.startsWith("h") && host.labels.tier.contains("d")')
    engine = ruled(apart, hosts=[labelled(f"h{n}", "db") for n in range(30)])
    for n in range(30):
        engine.commit(asked(f"v{n}"), engine.find(asked(f"v{n}")))
    assert len(judged) == 31  # each name, and the one label that all have
    judged.clear()
    engine.fleet.set_labels("h7", (("tier", "web"),))
    assert engine.find(asked(constraints=Constraints(pinned=("h7",)))) is None
    assert set(judged) == {"h7"}


def test_a_broken_rule_is_refused_when_it_is_set() -> None:
    engine = ruled()
    with pytest.raises(RoostError, match="lables"):
        engine.set_rules(RuleSet((Rule("typo", 'host.lables.tyer == "db"'),), 1))
    assert not engine.rules


def test_scopes_choose_the_vms() -> None:
    never = "host.name == ''"
    scopes = {
        RuleScope(): True,
        RuleScope(project="p"): True,
        RuleScope(project="q"): False,
        RuleScope(vm="vm"): True,
        RuleScope(vm="other"): False,
        RuleScope(selector=(LabelTerm("role", LabelOperator.IN, ("db",)),)): True,
        RuleScope(selector=(LabelTerm("role", LabelOperator.ABSENT),)): False,
    }
    for scope, binds in scopes.items():
        engine = ruled(Rule("never", never, scope=scope))
        assert (engine.find(asked(project="p")) is None) == binds, scope


def test_a_rule_can_be_lifted_for_one_request() -> None:
    never = Rule("never", "host.name == ''")
    engine = ruled(never)
    assert engine.find(asked()) is None
    assert engine.find(asked(lifted=("never",))).host == "a"


# Amounts


def test_a_floor_holds_in_batches_and_counts() -> None:
    hosts = (labelled("a", "web", 10 * GIB), labelled("b", "web", 9 * GIB))
    engine = ruled(ROOM, hosts=hosts)
    # The third finds 8 GiB or more only while they last: 10, 9, 8 on a and 9, 8 on b.
    assert capacity(engine, asked()).count == 5
    answers = engine.place_batch([asked(f"v{n}") for n in range(6)])
    assert [isinstance(each, Placement) for each in answers] == [True] * 5 + [False]


def test_an_inequality_holds_in_batches_and_counts() -> None:
    engine = ruled(FEW)
    assert capacity(engine, asked()).count == 6
    answers = engine.place_batch([asked(f"v{n}") for n in range(7)])
    assert [isinstance(each, Placement) for each in answers] == [True] * 6 + [False]


def test_a_condition_computed_anew_holds_in_batches_and_counts() -> None:
    engine = ruled(Rule("odd", "host.vms % 2 == 0"))
    assert capacity(engine, asked()).count == 3
    answers = engine.place_batch([asked(f"v{n}") for n in range(4)])
    assert [isinstance(each, Placement) for each in answers] == [True] * 3 + [False]


def test_losses_are_rehearsed_with_the_rules_of_now() -> None:
    hosts = tuple(host(name, 4000, labels=(("tier", tier),)) for name, tier in HOMES.items())
    engine = ruled(hosts=hosts)
    base = PlaceRequest("base", Demand(2000, GIB), labels=(("role", "db"),), key="id-1")
    engine.commit(base, engine.find(base))
    more = PlaceRequest("more", Demand(1000, GIB), labels=(("role", "web"),))
    before = capacity(engine, more, Scope.HOST).count
    engine.set_rules(RuleSet((DATABASES,), 1))
    # As far as the fleet remembers, the database may go anywhere.
    assert capacity(engine, more, Scope.HOST).count == before
    bound = capacity(engine, more, Scope.HOST, placed=[base])
    assert (bound.count, bound.blocking) == (0, "host a")


def test_all_or_nothing_obeys_rules_in_the_exact_search_too() -> None:
    hosts = (host("a", 2000, labels=(("tier", "db"),)), host("b", 2000))
    engine = ruled(DATABASES, hosts=hosts)
    web = PlaceRequest("web", Demand(2000, GIB), labels=(("role", "web"),), strategy="first_fit")
    base = PlaceRequest("db", Demand(2000, GIB), labels=(("role", "db"),), strategy="first_fit")
    found = place_group(engine, [web, base])
    assert found.how == "exact search"
    assert [each.host for each in found.placements] == ["b", "a"]


def test_all_or_nothing_counts_its_own_members_for_rules() -> None:
    hosts = (host("a", 4000, labels=(("tier", "db"),)), host("b", 2000))
    few = Rule("few", "host.vms < 1")
    free = Rule("free", "host.free.cpu >= 2000")
    anew = Rule("anew", "host.vms % 3 == 0")
    web = PlaceRequest("web", Demand(1000, GIB), labels=(("role", "web"),), strategy="first_fit")
    base = PlaceRequest("db", Demand(2000, GIB), labels=(("role", "db"),), strategy="first_fit")
    third = PlaceRequest("third", Demand(1000, GIB), labels=(("role", "web"),))
    for rule in (few, free, anew):
        found = place_group(ruled(DATABASES, rule, hosts=hosts), [web, base])
        assert [each.host for each in found.placements] in (["b", "a"], ["a", "a"]), rule
        assert rule is free or found.placements[0].host == "b"
        refused = place_group(ruled(DATABASES, rule, hosts=hosts), [web, base, third])
        assert refused.fits == (rule is free), rule


# What is said


def test_a_refusal_counts_hosts_by_rule_and_part() -> None:
    engine = ruled(DATABASES, FEW)
    for name in ("b", "c"):
        for number in range(2):
            engine.fleet.apply(f"{name}{number}", engine.fleet.row(name), [0, 0, 0])
    answer = engine.place(asked())
    assert isinstance(answer, Rejection)
    counts = {(each.rule, each.part): each.first for each in answer.reasons}
    assert counts == {
        ("databases-apart", 'host.labels.tier == "db"'): 1,
        ("few", "host.vms < 2"): 2,
    }
    assert '1 rule databases-apart: host.labels.tier == "db"' in answer.message
    assert {each.rule for each in answer.fixes if each.kind is FixKind.LIFT_RULE} == {
        "databases-apart",
        "few",
    }


def test_a_rule_of_many_parts_is_told_in_a_few_reasons() -> None:
    parts = " && ".join(f'host.labels.a{n} == "b"' for n in range(300))
    engine = ruled(Rule("many", parts))
    [bound] = engine.question(asked()).terms.rules
    begun = process_time()
    answer = engine.place(asked())
    assert process_time() - begun < 1.0  # 90,000 columns, were the rule computed for each part
    assert isinstance(answer, Rejection)
    assert len(bound.parts.conjuncts) == 300
    assert len(answer.reasons) == MOST_PARTS + 1
    assert answer.reasons[-1].part == f"{300 - MOST_PARTS} more parts"
    assert sum(each.first for each in answer.reasons) == 3
    assert len(answer.message) < 2000


def test_an_error_is_a_reason_of_its_own() -> None:
    engine = ruled(Rule("ssd", 'host.labels.ssd == "nvme"'))
    answer = engine.place(asked())
    [count] = answer.reasons
    assert (count.reason, count.rule, count.first) == (Reason.RULE_ERROR, "ssd", 3)


def test_an_explanation_has_the_values_of_the_host() -> None:
    engine = ruled(DATABASES, ROOM, hosts=(labelled("a", "web", 4 * GIB), labelled("b", "db")))
    found = explain(engine, asked())
    verdict = found.verdict("a")
    assert verdict.reasons == (Reason.RULE,)
    assert [(each.rule, each.part, each.values) for each in verdict.rules] == [
        ("databases-apart", 'host.labels.tier == "db"', (("host.labels.tier", '"web"'),)),
        ("room", 'host.free.memory >= quantity("8Gi")', (("host.free.memory", str(4 * GIB)),)),
    ]
    assert found.verdict("b").rules == ()


def test_a_decision_is_replayed_with_its_rules() -> None:
    engine = ruled(DATABASES)
    decision = record(engine, asked())
    snapshot = engine.fleet.snapshot()
    engine.set_rules(RuleSet((), 2))
    assert replay(decision, snapshot) == decision.answer


# Soft rules


def test_a_soft_rule_charges_by_weight_and_shows_it() -> None:
    engine = ruled(Rule("prefer", 'host.name == "c"', weight=250))
    found = engine.find(asked(), runners_up=2)
    assert found.host == "c"
    assert [each.score for each in found.runners_up] == [25 * (SCORE_ONE // 100)] * 2


def test_an_inequality_is_graded_by_how_far_it_is_missed() -> None:
    sizes = {"a": 8, "b": 24, "c": 16}
    hosts = tuple(labelled(name, "web", gib * GIB) for name, gib in sizes.items())
    engine = ruled(Rule("large", 'host.free.memory >= quantity("32Gi")', weight=1000), hosts=hosts)
    found = engine.find(asked(strategy="first_fit"), runners_up=2)
    assert [found.host, *(each.host for each in found.runners_up)] == ["b", "c", "a"]


@pytest.mark.parametrize(
    "text",
    [
        "host.vms - (-9223372036854775807 - 1) > 0",
        "host.free.memory * 9000000000000 * 9000000000000 >= 1",
    ],
)
def test_a_soft_rule_that_overflows_charges_wholly(text: str) -> None:
    engine = ruled(Rule("large", text, weight=500))
    found = engine.find(asked(), runners_up=2)
    assert [each.score for each in found.runners_up] == [50 * (SCORE_ONE // 100)] * 2


def test_no_sum_of_lower_priorities_outbids_a_higher_one() -> None:
    low = [Rule(f"low-{n}", 'host.name != "b"', weight=1000) for n in range(20)]
    high = Rule("high", 'host.name == "b"', weight=1, priority=1)
    engine = ruled(*low, high)
    assert engine.find(asked()).host == "b"
    highest = Rule("highest", 'host.name == "c"', weight=1, priority=2)
    engine.set_rules(RuleSet((*low, high, highest), 2))
    assert engine.find(asked()).host == "c"


def test_thousands_of_lower_rules_do_not_outbid_a_higher_one() -> None:
    low = [Rule(f"low-{n}", 'host.name != "b"', weight=1000) for n in range(5400)]
    engine = ruled(*low, Rule("high", 'host.name == "b"', weight=1, priority=1))
    assert engine.find(asked()).host == "b"


def test_a_negative_priority_is_refused() -> None:
    with pytest.raises(RoostError, match="not within 0 and"):
        Rule("low", "host.vms == 0", weight=1000, priority=-1)


def test_what_is_left_of_a_rule_says_an_error_in_words() -> None:
    engine = ruled(DATABASES)
    plain = PlaceRequest("vm", Demand(1000, GIB))
    [bound] = engine.terms_of(plain).rules
    assert bound.text == "(vm.labels has no 'role') || host.labels.tier == \"db\""


def test_a_costly_rule_is_an_error_on_the_hosts_beyond_its_steps() -> None:
    items = "[" + ",".join(["1"] * 900) + "]"
    costly = Rule("costly", f"{items}.all(a, a + size(host.name) > 0)")
    engine = ruled(costly, hosts=tuple(host(f"h{n}", memory_bytes=16 * GIB) for n in range(40)))
    [rule] = engine.question(asked()).terms.rules
    column = engine.question(asked()).rules.rule(rule, engine.fleet.present_rows())
    assert column[0] == HOLDS
    assert column[-1] == ERROR
    assert engine.find(asked()) is not None
    [refused] = explain(engine, asked()).verdict("h39").rules
    assert "too many steps" in refused.error


def test_a_list_of_names_is_answered_for_every_host() -> None:
    names = ",".join(f'"h{n}"' for n in range(400))
    rule = Rule("names", f"host.name in [{names}]")
    engine = ruled(rule, hosts=tuple(host(f"h{n}", memory_bytes=16 * GIB) for n in range(450)))
    [bound] = engine.question(asked()).terms.rules
    column = engine.question(asked()).rules.rule(bound, engine.fleet.present_rows())
    assert column.tolist() == [HOLDS] * 400 + [FAILS] * 50


def test_what_a_macro_binds_is_not_folded() -> None:
    expr = parse('[{"name": "x"}].all(project, project.name == "x" && host.vms == 0)')
    assert with_fields(expr, {("project", "name"): "p"}) == expr


def test_a_map_with_keys_of_true_and_false_is_folded_as_it_is() -> None:
    engine = ruled(Rule("by-truth", "{true: vm.priority}[host.vms >= 0] == 7"))
    assert engine.find(asked(priority=7)) is not None
    assert engine.find(asked(priority=8)) is None


def test_a_rule_of_another_project_does_not_tell_vms_apart() -> None:
    named = Rule("named", 'vm.name != "x" || host.vms > 0', scope=RuleScope(project="q"))
    engine = ruled(DATABASES, named)
    one, other = (engine.terms_of(asked(name, project="p")) for name in ("v1", "v2"))
    assert one is other
    one, other = (engine.terms_of(asked(name, project="q")) for name in ("v1", "x"))
    assert one != other
    assert engine.find(asked("x", project="p")) is not None
    assert engine.find(asked("x", project="q")) is None


def test_a_rule_that_others_of_the_batch_make_true_holds_in_any_order() -> None:
    rule = Rule("never first", "host.vms >= 1", scope=RuleScope(project="second"))
    engine = Engine(fleet_of(host("a"), host("b")), rules=RuleSet((rule,), 1))
    late = PlaceRequest("late", Demand(1000, GIB), project="second")
    base = PlaceRequest("base", Demand(1000, GIB))
    for batch in ([late, base], [base, late]):
        found = place_group(engine, batch)
        assert found.fits
        assert len({each.host for each in found.placements}) == 1
    alone = place_group(engine, [late])
    assert not alone.fits
    assert alone.proven


# Projects

TWO = Rule("two", "project.vms < 2")
CORES = Rule("cores", 'project.committed.cpu + vm.demand.cpu <= cores("3")')


@pytest.mark.parametrize(("rule", "most"), [(TWO, 2), (CORES, 3)], ids=["vms", "amounts"])
def test_a_project_has_no_more_than_a_rule_gives_it(rule: Rule, most: int) -> None:
    engine = ruled(rule)
    assert capacity(engine, asked(project="p")).count == most
    batch = [asked(f"v{n}", project="p") for n in range(4)]
    refused = place_group(engine, batch[: most + 1])
    assert [each.name for each in refused.conflict.restrictions] == [rule.name]
    assert place_group(engine, batch[:most]).rejection is None
    answers = engine.place_batch(batch)
    assert [isinstance(each, Placement) for each in answers] == [n < most for n in range(4)]
    assert engine.find(asked("else", project="q")) is not None


def test_a_vm_does_not_count_for_itself_and_counts_once_wherever_it_is() -> None:
    engine = ruled(TWO)
    for name in ("one", "two"):
        engine.commit(asked(name, project="p"), engine.find(asked(name, project="p")))
    engine.fleet.remove(engine.fleet.vm_number("one"))
    assert engine.find(asked("one", project="p")) is not None
    assert engine.find(asked("three", project="p")) is None
    engine.fleet.discount_vm("one")
    assert engine.find(asked("three", project="p")) is not None


def test_an_explanation_shows_what_a_project_has() -> None:
    engine = ruled(CORES)
    engine.fleet.count_vm("waits", "p", (2500, 0, 0))
    [refused] = explain(engine, asked(project="p")).verdict("a").rules
    assert refused.part == 'project.committed.cpu + 1000 <= cores("3")'
    assert refused.values == (("project.committed.cpu", "2500"),)


def test_a_quota_that_is_not_there_is_missing() -> None:
    half = Rule("half", "project.committed.cpu * 2 < project.quota.cpu")
    engine = ruled(half)
    assert engine.find(asked(project="p")) is None
    assert "no 'cpu'" in explain(engine, asked(project="p")).verdict("a").rules[0].error
    engine.fleet.projects.set_quota("p", (4000, None, None, None))
    assert engine.find(asked(project="p")) is not None
    lenient = ruled(Rule("or", f"!has(project.quota.cpu) || {half.expression}"))
    assert lenient.find(asked(project="p")) is not None


# Many classes of VMs


def test_terms_stay_bounded_under_a_rule_on_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MOST_TERMS", 256)
    monkeypatch.setattr(binding, "_MOST_CLASSES", 256)
    monkeypatch.setattr(left, "_REMEMBERED", left.Remembered(256))
    engine = ruled(Rule("own", 'host.labels.tier == "db" || vm.name != host.name + "-away"'))
    pinned = Constraints(pinned=("c",))
    stays = asked("stays", constraints=pinned)
    engine.commit(stays, engine.find(stays))
    most = 0
    for n in range(3000):
        constraints = pinned if n % 2 else NO_CONSTRAINTS
        request = asked(f"vm-{n}" if n % 3 else "a-away", constraints=constraints)
        found = engine.find(request)
        assert found.host == ("c" if n % 2 else "b" if n % 3 == 0 else "a"), n
        classes = len(engine._binder._plain) + len(engine._binder._others)
        most = max(most, len(engine.fleet.terms), classes)
        if n % 7 == 0:
            number = engine.commit(replace(request, key=f"{n}"), found)
            engine.fleet.remove(number)
    assert most <= 2 * 256 + 2
    assert len(engine._terms._compiled_at) <= 2 * 256
    kept = engine.fleet.terms[int(engine.fleet.vms.terms[engine.fleet.vm_number("stays")])]
    assert kept.constraints == pinned
    check(engine.fleet)


def test_terms_are_not_numbered_anew_while_they_may_be_undone() -> None:
    engine = ruled(DATABASES)
    mark = engine.fleet.mark()
    engine.commit(asked(), engine.find(asked()))
    assert not engine.fleet.renumber_terms()
    engine.fleet.undo(mark)
    assert engine.fleet.renumber_terms()
    assert engine.find(asked()).host == "b"
