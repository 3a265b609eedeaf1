"""The protocol that an agent and a control plane agree upon, by the ranges that both speak."""

import pytest

from roost.wire.agentlink import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    AmountInfo,
    Hello,
    Inventory,
    Welcome,
    agree,
    decode_to_agent,
    disagreement,
    encode,
)


def hello(protocol: int, newest: int = 0) -> Hello:
    amount = AmountInfo(1)
    inventory = Inventory(amount, amount, amount)
    return Hello(protocol, "h-1", "agent-1", "9.9", inventory, newest=newest)


@pytest.mark.parametrize(
    ("agents", "planes", "agreed"),
    [
        ((1, 0), (1, 1), 1),  # a release that knows of no range
        ((1, 0), (1, 2), 1),
        ((1, 2), (1, 2), 2),
        ((1, 2), (1, 1), 1),  # the agent was upgraded first
        ((1, 1), (1, 2), 1),  # the control plane was
        ((2, 3), (1, 2), 2),
        ((1, 2), (2, 3), 2),
        ((1, 9), (2, 3), 3),
        ((3, 4), (1, 2), None),
        ((1, 2), (3, 4), None),
        ((3, 1), (1, 2), None),  # nonsense is not agreed upon
    ],
)
def test_the_newest_that_both_speak_is_agreed_upon(
    agents: tuple[int, int], planes: tuple[int, int], agreed: int | None
) -> None:
    assert agree(hello(*agents), *planes) == agreed


def test_who_must_be_upgraded_is_said() -> None:
    said = disagreement(hello(PROTOCOL + 1, PROTOCOL + 2))
    assert said == (
        "the agent of host 'h-1' (roost 9.9) speaks protocol 2 to 3, the control plane 1: the "
        "control plane must be upgraded"
    )
    assert disagreement(hello(OLDEST_PROTOCOL - 1)).endswith("the agent must be upgraded")


def test_a_welcome_of_a_release_that_knows_of_no_range_means_the_first() -> None:
    said = b'{"type":"welcome","number":1,"heartbeat_s":5,"lease_s":60,"full_list_s":300}'
    found = decode_to_agent(said)
    assert isinstance(found, Welcome)
    assert found.protocol == 1
    assert decode_to_agent(encode(Welcome(1, 5.0, 60.0, 300.0, 2))) == Welcome(1, 5, 60, 300, 2)
