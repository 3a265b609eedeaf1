"""The one word for what a VM is doing: one table, read by Python and by SQL.

`TABLE` is read from the top, and the first row whose condition holds gives the word. A condition is
made of facts about one VM; each fact is looked up in a row that was read, or asked of the database.
So what `GET /vms?state=` finds is what each VM is shown as, and what is counted for metrics.
"""

from collections.abc import Callable
from typing import Literal, get_args

from sqlalchemy import (
    Connection,
    and_,
    case,
    false,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.sql.elements import ColumnElement

from roost.base.errors import InvalidRequest
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import hosts, vms
from roost.model.states import Desired, HostHealth, Observed

State = Literal[
    "pending", "starting", "running", "pausing", "paused", "stopping", "stopped", "migrating",
    "failed", "unknown", "deleting",
]  # fmt: skip
STATES: tuple[State, ...] = get_args(State)

Health = HostHealth | None


class Fact:
    """Something that is so of a VM or not, by its row and its host's health, and in SQL."""

    def __init__(
        self, holds: Callable[[VMRow, Health], bool], sql: Callable[[], ColumnElement[bool]]
    ) -> None:
        self.holds, self.sql = holds, sql

    def __and__(self, other: "Fact") -> "Fact":
        return Fact(
            lambda vm, health: self.holds(vm, health) and other.holds(vm, health),
            lambda: and_(self.sql(), other.sql()),
        )

    def __invert__(self) -> "Fact":
        return Fact(lambda vm, health: not self.holds(vm, health), lambda: not_(self.sql()))


def desired(word: Desired) -> Fact:
    """Return the fact that this is wanted of a VM."""
    return Fact(lambda vm, _: vm.desired == word, lambda: vms.c.desired == word)


def observed(word: Observed) -> Fact:
    """Return the fact that this was seen of a VM last."""
    return Fact(lambda vm, _: vm.observed == word, lambda: vms.c.observed == word)


ALWAYS = Fact(lambda vm, _: True, true)
HAS_HOST = Fact(lambda vm, _: vm.host is not None, lambda: vms.c.host.is_not(None))
WAITS = Fact(lambda vm, _: vm.pending is not None, lambda: vms.c.pending.is_not(None))
MOVES = Fact(lambda vm, _: vm.phase != "", lambda: vms.c.phase != "")
HAS_PROBLEM = Fact(lambda vm, _: vm.problem is not None, lambda: vms.c.problem.is_not(None))
CURRENT = Fact(
    lambda vm, _: vm.observed_generation >= vm.generation,
    lambda: vms.c.observed_generation >= vms.c.generation,
)
#: What was seen last of a VM on a host that is offline was then.
HOST_OFFLINE = Fact(
    lambda vm, health: health == "offline",
    lambda: and_(
        vms.c.host.is_not(None),
        vms.c.host.in_(select(hosts.c.number).where(hosts.c.health == "offline")),
    ),
)

#: (word, condition), from the top; the last three are on their way to what is wanted.
TABLE: tuple[tuple[State, Fact], ...] = (
    ("deleting", desired("absent")),
    ("stopped", ~HAS_HOST & desired("stopped") & ~WAITS),
    ("pending", ~HAS_HOST),
    ("unknown", HOST_OFFLINE),
    ("migrating", MOVES),
    ("failed", HAS_PROBLEM & CURRENT & observed("failed")),
    ("running", desired("running") & observed("running")),
    ("paused", desired("paused") & observed("paused")),
    ("stopped", desired("stopped") & observed("stopped")),
    ("starting", desired("running")),
    ("pausing", desired("paused")),
    ("stopping", ALWAYS),
)


def vm_state(vm: VMRow, health: Health) -> State:
    """Return the one word for what a VM is doing; `health` is that of its host."""
    # All that facts look at. There are few combinations, and every answer of the API asks for one.
    seen = (
        vm.desired, vm.observed, vm.host is None, vm.pending is None, vm.phase, vm.problem is None,
        vm.observed_generation >= vm.generation, health,
    )  # fmt: skip
    found = _known.get(seen)
    if found is None:
        found = _known[seen] = next(word for word, fact in TABLE if fact.holds(vm, health))
    return found


_known: dict[tuple[object, ...], State] = {}


def in_state(word: str) -> ColumnElement[bool]:
    """Return the condition by which a database finds the VMs that are shown as this."""
    if word not in STATES:
        states = ", ".join(STATES)
        raise InvalidRequest(f"unknown state {word!r}; states are {states}", state=word)
    found: ColumnElement[bool] = false()
    above: list[ColumnElement[bool]] = []
    for each, fact in TABLE:
        if each == word:
            found = or_(found, and_(*map(not_, above), fact.sql()))
        above.append(fact.sql())
    return found


def count_states(connection: Connection) -> dict[str, int]:
    """Return how many VMs are shown as each state; a word that no VM has is 0."""
    words = case(*((fact.sql(), literal_column(f"'{word}'")) for word, fact in TABLE))
    query = select(words.label("state"), func.count()).select_from(vms).group_by("state")
    found: dict[str, int] = dict.fromkeys(STATES, 0)
    found.update((word, count) for word, count in connection.execute(query))
    return found
