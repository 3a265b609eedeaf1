"""The states of jobs and machines: every word is in its table, and ends are ends."""

from typing import get_args

import pytest

from roost.model import job
from roost.model.resources import Demand

GiB = 2**30


@pytest.mark.parametrize(
    ("states", "table"),
    [(job.JobState, job.JOB_TRANSITIONS), (job.MachineState, job.MACHINE_TRANSITIONS)],
    ids=["job", "machine"],
)
def test_every_state_is_in_the_table_and_can_be_reached(
    states: object, table: dict[str, tuple[str, ...]]
) -> None:
    words = get_args(states)

    assert set(table) == set(words)
    assert {to for all_to in table.values() for to in all_to} | {words[0], "queued"} >= set(words)


def test_cancelling_is_not_final_and_becomes_cancelled() -> None:
    assert "cancelling" not in job.FINAL
    assert "cancelled" in job.JOB_TRANSITIONS["cancelling"]


def test_a_machine_whose_provider_was_asked_is_only_given_up_through_its_return() -> None:
    for state in ("allocating", "allocated", "ready", "draining"):
        assert "returned" not in job.MACHINE_TRANSITIONS[state]


def test_an_attempt_is_named_by_job_and_number() -> None:
    assert job.job_of(job.attempt_id("job-a.17", 3)) == ("job-a.17", 3)


def test_a_type_holds_a_job_only_when_every_amount_fits() -> None:
    small = job.MachineType("small", 1000, 2 * GiB, 0, price_micro=10)

    assert small.holds(Demand(1000, 2 * GiB))
    assert not small.holds(Demand(1000, 9 * GiB))
