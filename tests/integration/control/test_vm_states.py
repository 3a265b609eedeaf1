"""A VM is found by the word that it is shown as, whatever its row says."""

import asyncio
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import Table, Text, false, select

from roost.base.errors import InvalidRequest
from roost.control.vms import states
from roost.control.vms.states import STATES, TABLE, Fact, State, in_state, vm_state
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import hosts, vms
from roost.model.states import Desired, HostHealth, Observed
from tests.databases import opened

HEALTH: dict[int | None, HostHealth | None] = {
    None: None,
    **dict(enumerate(get_args(HostHealth))),
}


def row(table: Table, **values: Any) -> dict[str, Any]:
    """Return a row with these values; the others say nothing."""
    plain = {
        column.name: None if column.nullable else "" if isinstance(column.type, Text) else 0
        for column in table.c
    }
    return {**plain, **values}


def every_vm() -> list[dict[str, Any]]:
    """Return a VM for every combination of what its state may depend on."""
    combined = product(
        get_args(Desired), get_args(Observed), ("", "moving"), HEALTH, (None, "{}"), (None, "{}"),
        (1, 2),
    )  # fmt: skip
    return [
        row(
            vms,
            id=f"vm-{n}",
            name=f"v{n}",
            project="p",
            generation=2,
            desired=desired,
            observed=observed,
            phase=phase,
            host=host,
            pending=pending,
            problem=problem,
            observed_generation=seen,
        )
        for n, (desired, observed, phase, host, pending, problem, seen) in enumerate(combined)
    ]


async def compare(url: str) -> set[State]:
    """Ask the database for every word, and Python for the word of every VM."""
    rows = every_vm()
    known = [
        row(hosts, number=number, name=f"h{number}", health=health)
        for number, health in HEALTH.items()
        if number is not None
    ]
    async with opened(url) as store:
        await store.write(lambda tx: tx.connection.execute(hosts.insert(), known).rowcount)
        await store.write(lambda tx: tx.connection.execute(vms.insert(), rows).rowcount)
        found: dict[str, list[State]] = {}
        for word in STATES:
            query = select(vms.c.id).where(in_state(word))
            for vm in await store.read(lambda c: c.execute(query).scalars().all()):  # noqa: B023
                found.setdefault(vm, []).append(word)
        counted = await store.read(states.count_states)
    shown = {each["id"]: [vm_state(VMRow(**each), HEALTH[each["host"]])] for each in rows}
    assert found == shown
    every = Counter(word for words in shown.values() for word in words)
    assert counted == {word: every[word] for word in STATES}
    return {word for words in shown.values() for word in words}


def test_every_vm_is_found_by_the_word_that_it_is_shown_as(database_url: str) -> None:
    assert asyncio.run(compare(database_url)) == set(STATES)


def test_a_word_that_is_no_state_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match="pending, starting"):
        in_state("asleep")


BROKEN = {
    "SQL forgets the host's health": (
        "unknown",
        Fact(states.HOST_OFFLINE.holds, false),
    ),
    "SQL looks at the VM's problem alone": (
        "failed",
        Fact(dict(TABLE)["failed"].holds, states.HAS_PROBLEM.sql),
    ),
    "Python forgets moves": ("migrating", Fact(lambda vm, health: False, states.MOVES.sql)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_table_of_which_python_and_sql_differ_is_noticed(
    broken: tuple[State, Fact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tuple((word, broken[1] if word == broken[0] else fact) for word, fact in TABLE)
    monkeypatch.setattr(states, "TABLE", table)
    monkeypatch.setattr(states, "_known", {})
    with pytest.raises(AssertionError):
        asyncio.run(compare(f"sqlite:///{tmp_path}/roost.db"))
