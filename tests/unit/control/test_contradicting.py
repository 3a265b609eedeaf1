"""Contradictions of rules: those that all pairs of conjuncts have, in a bounded number of steps."""

from hypothesis import example, given
from hypothesis import strategies as st

from roost.control.rules.contradicting import MOST_STEPS, Steps, contradictions
from roost.control.rules.demands import Demand
from roost.model.rules import Rule
from tests.naive import contradicting as naive
from tests.turns import draws_in_turn

NUMBERS = ("1000", "2000", "2000.0", "3000", "0.0 / 0.0")
TEXTS = ('"a"', '"b"', '"c"')
FIELDS = {"vm.priority": NUMBERS, "host.used.cpu": NUMBERS, 'host.labels["tier"]': TEXTS}


@st.composite
def conjunct(draw: st.DrawFn) -> str:
    field, constants = draw(st.sampled_from(list(FIELDS.items())))
    operators = ("==", "in", "!=", *(("<", "<=", ">", ">=") if constants is NUMBERS else ()))
    operator = draw(st.sampled_from(operators))
    if operator == "in":
        return f"{field} in [{', '.join(draw(st.lists(st.sampled_from(constants), max_size=3)))}]"
    value = draw(st.sampled_from(constants))
    return f"{value} {operator} {field}" if draw(st.booleans()) else f"{field} {operator} {value}"


@st.composite
def rule_sets(draw: st.DrawFn) -> list[Rule]:
    texts = draw(st.lists(st.lists(conjunct(), min_size=1, max_size=5), min_size=1, max_size=5))
    mine = draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    return [
        Rule(f"{'policy/mine/' if own else ''}r{place}", " && ".join(parts))
        for place, (parts, own) in enumerate(zip(texts, mine, strict=True))
    ]


def told(found: tuple[Demand, Demand]) -> tuple[str, str, str, str]:
    one, other = found
    return one.rule, one.part, other.rule, other.part


@draws_in_turn(200)
@given(rule_sets())
@example([Rule("policy/mine/r", "vm.priority in [] && vm.priority in []")])
def test_the_contradictions_are_those_of_all_pairs_of_conjuncts(rules: list[Rule]) -> None:
    found = contradictions(rules, lambda name: name.startswith("policy/mine/"), Steps(MOST_STEPS))
    expected = naive.contradictions(rules, "policy/mine/")
    assert [told(each) for each in found] == [told(each) for each in expected]


def test_conjuncts_that_say_the_same_of_one_field_are_compared_once_for_two_rules() -> None:
    text = "&&".join(["vm.priority>1000"] * 500)
    rules = [Rule(f"mine/{place}", text + " " * place) for place in range(20)]
    steps = Steps(10_000)  # of the 500 * 500 pairs of each of 210 pairs of rules
    assert not list(contradictions(rules, lambda name: True, steps))
    assert not steps.over


def test_rules_without_one_that_it_is_about_are_not_compared() -> None:
    rules = [Rule(f"other/{place}", f"vm.priority=={1000 + place}") for place in range(200)]
    rules.append(Rule("mine/a", "vm.priority>2000"))
    steps = Steps(5_000)  # of some 20,000 pairs
    assert len(list(contradictions(rules, lambda name: name == "mine/a", steps))) == 200
    assert steps.left > 0


def test_what_needs_too_many_comparisons_ends_and_says_so() -> None:
    text = "&&".join(f"vm.priority in [1000,{value}]" for value in range(2000, 2100))
    rules = [Rule(f"mine/{place}", text + " " * place) for place in range(5)]
    steps = Steps(100_000)
    assert not list(contradictions(rules, lambda name: True, steps))
    assert steps.over
