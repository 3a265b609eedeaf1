"""Row: the text of a rule parsed and checked, as when it is created.

Every text is another one, so that nothing is found in a cache of patterns or amounts. Before
anything is timed, each compiled rule is asked about a host that it must accept.
"""

from collections.abc import Iterator
from functools import partial
from statistics import quantiles
from time import perf_counter

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.measuring import Job, Sizes
from benchmarks.results import Result, at_most
from roost.rules.checking import condition
from roost.rules.evaluating import judge

LENGTH = 200
_TEXTS = 2_000


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the job."""
    yield Job("compile", partial(_row, min(_TEXTS, sizes.many)))


def texts(count: int) -> list[str]:
    """Return rules of 200 characters, each with places, amounts, a macro and a pattern."""
    rules = []
    for number in range(count):
        text = (
            'host.zone in ["a", "b", ""] && '
            f'host.free.memory >= quantity("{number}Mi") && '
            '!host.taints.exists(t, t.key == "batch") && '
            f'host.name.matches("^h{number:04}-[0-9]+$") && '
            f"(vm.priority > {number} || fleet.load < 0.75)"
        )
        rules.append(text.replace('""', f'"{"c" * (LENGTH - len(text))}"'))
    return rules


def _check(number: int, text: str) -> None:
    host = {"zone": "b", "free": {"memory": 2**40}, "taints": [], "name": f"h{number:04}-7"}
    world = {"host": host, "vm": {"priority": 0}, "fleet": {"load": 0.5}}
    if len(text) != LENGTH or judge(condition(text), world) is not True:
        raise AnswersDiffer(f"a host that satisfies {text!r} is refused")


def _row(count: int) -> list[Result]:
    rules = texts(count)
    for number in range(0, count, max(1, count // 50)):
        _check(number, rules[number])
    taken = []
    for text in rules:
        begun = perf_counter()
        condition(text)
        taken.append((perf_counter() - begun) * 1e3)
    cuts = quantiles(taken, n=100)
    note = f"{LENGTH} characters, median of {count}; 99 of 100 within {cuts[98]:.2f} ms"
    return [at_most("compile", cuts[49], "ms", 1.0, note=note)]
