"""Cases that take turns: of the slowest suites every commit runs some, and a few commits run all.

`make test`, `make test-system`, `make test-qemu` and .ci/run name the commit (TURN); without it
every case runs (`make test-all`, `make pytest ARGS=...`, pytest by hand). Three ways to take turns:
`in_turn` thins a list of parameters, the marker `turns(n)` lets every n-th case of a file run, and
`drawing(n)` lets Hypothesis draw a third of n examples, from one of three seeds.
A test of the control plane that runs on both databases always runs on SQLite, and on PostgreSQL in
one of five turns. What is about PostgreSQL itself always runs: the ledger's own tests, those that
ask for `postgres_url`, and races, which are marked `turns(1)`. How many wait for another commit is
said at the end.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import pytest
from hypothesis import seed, settings

C = TypeVar("C")
D = TypeVar("D", bound=Callable[..., Any])

#: Seeds that a property's examples are drawn from, one at a commit.
SEEDS = 3

#: Tests of the control plane on both databases: of a file's cases on PostgreSQL one in five runs.
CONTROL, ON_POSTGRESQL = ("tests/integration/control/", "tests/integration/jobs/"), 5


def in_turn(cases: Sequence[C], count: int) -> Sequence[C]:
    """Return so many of the cases, drawn from the commit; all of them when none is named."""
    turn = os.environ.get("TURN", "")
    if not turn:
        return cases
    first = drawn(turn) % len(cases)
    chosen = {(first + at * len(cases) // count) % len(cases) for at in range(count)}
    return [case for at, case in enumerate(cases) if at in chosen]


def drawing(count: int, **given: Any) -> tuple[settings, Callable[[D], D]]:
    """Return how many examples Hypothesis draws of so many, and what gives a property their seed.

    Without a commit they are all drawn, as the profile says.
    """
    turn = os.environ.get("TURN", "")
    if not turn:
        return settings(max_examples=count, **given), lambda prop: prop
    return settings(max_examples=-(-count // SEEDS), **given), seed(drawn(turn) % SEEDS)


def draws_in_turn(count: int | None = None, **given: Any) -> Callable[[D], D]:
    """Let a property draw a share of so many examples at each commit, or of the profile's."""
    chosen, seeded = drawing(count or settings.default.max_examples, **given)
    return lambda prop: seeded(chosen(prop))


def drawn(turn: str) -> int:
    """Return the number that a commit draws."""
    return int.from_bytes(sha256(turn.encode()).digest()[:8], "big")


def has_turn(keys: Sequence[tuple[str, int]], turn: str) -> Iterator[bool]:
    """Tell of every case whether it runs; a key is its file and of how many cases one does."""
    seen: Counter[tuple[str, int]] = Counter()
    first = drawn(turn)
    for key in keys:
        yield (seen[key] + first) % key[1] == 0
        seen[key] += 1


def one_of(item: pytest.Item) -> int:
    """Return of how many cases like this one a commit runs one."""
    marker = item.get_closest_marker("turns")
    if marker is not None:
        return int(marker.args[0])
    given = getattr(item, "callspec", None)
    on = given.params.get("database_url") if given is not None else None
    return ON_POSTGRESQL if on == "postgresql" and item.nodeid.startswith(CONTROL) else 1


@pytest.hookimpl(trylast=True)  # after those that were chosen by name or marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the cases that wait for another commit."""
    turn = os.environ.get("TURN", "")
    if not turn:
        return
    keys = [(item.nodeid.partition("::")[0], one_of(item)) for item in items]
    has = list(has_turn(keys, turn))
    waiting = [item for item, runs in zip(items, has, strict=True) if not runs]
    items[:] = [item for item, runs in zip(items, has, strict=True) if runs]
    if waiting:
        config.hook.pytest_deselected(items=waiting)
        _count(config, {"waiting": len(waiting), "sharing": sum(key[1] > 1 for key in keys)})


def _count(config: pytest.Config, told: dict[str, int]) -> None:
    """Keep what is said at the end; a process of xdist hands it to the one that prints."""
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is None:
        config.stash[_TOLD] = told
    else:
        output["turns"] = told


_TOLD = pytest.StashKey[dict[str, int]]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a process of xdist has counted: each of them has the same cases."""
    told = getattr(node, "workeroutput", {}).get("turns")
    if told:
        node.config.stash[_TOLD] = told


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many cases wait for another commit, and how to run them all."""
    told = config.stash.get(_TOLD, None)
    if told:
        terminalreporter.write_line(
            f"turns: of {told['sharing']} cases that take turns {told['waiting']} wait for other "
            f"commits (TURN={os.environ['TURN'][:12]}; TURN= runs all)"
        )
