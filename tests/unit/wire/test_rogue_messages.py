"""The benchmark's rogue agent says what it is meant to: some of it is taken, some refused."""

import msgspec
import pytest

from benchmarks.hardening.rogue import messages
from roost.wire.agentlink import Hello, Report, take_from_agent

ABSURD, BEYOND, FULL, LIES, UNREAD, PLAIN = messages("rogue-0")


@pytest.mark.parametrize("said", [*FULL, LIES[0], UNREAD[0], *PLAIN], ids=len)
def test_a_rogue_registers_before_it_lies(said: bytes) -> None:
    taken = take_from_agent(said)
    assert isinstance(taken.message, Hello)
    assert taken.left_out == 0


@pytest.mark.parametrize("said", [ABSURD[0], BEYOND[0]], ids=["absurd", "beyond"])
def test_what_is_out_of_bounds_is_refused(said: bytes) -> None:
    with pytest.raises(msgspec.DecodeError, match=r"length <= 32|<= \d+"):
        take_from_agent(said)


def test_lies_are_read_and_what_cannot_be_read_is_left_out() -> None:
    for said in LIES[1:]:
        taken = take_from_agent(said)
        assert isinstance(taken.message, Report)
        assert len(taken.message.vms) + taken.left_out == 16_000
    assert take_from_agent(UNREAD[1]).left_out == 16_000
