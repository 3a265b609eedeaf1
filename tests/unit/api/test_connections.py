"""Who makes room when one address has more connections without a good token than it may."""

import asyncio
from dataclasses import dataclass, field

import pytest

from roost.api.fast.connections import Connections
from roost.api.limits import Limits


@dataclass(eq=False)
class Connection:
    """A connection from one address, that has sent half a request or nothing."""

    is_half: bool = False
    shakes: bool = False
    address: str = "192.0.2.1"
    idle: bool = True
    ended: list[bool] = field(default_factory=list)

    def look(self, now: float) -> None:
        """Let the client be."""

    def end(self) -> None:
        """Note that it was ended."""
        self.ended.append(True)


def crowd(*there: Connection) -> tuple[bool, list[bool]]:
    """Let one more connect beside these, all of this moment; who was ended of them."""

    async def connect() -> bool:
        watch = Connections(Limits(strangers=len(there)))
        assert all(watch.admit(each, 0) for each in there)
        return watch.admit(Connection(), 0)

    return asyncio.run(connect()), [bool(each.ended) for each in there]


@pytest.mark.parametrize("half", [0, 1, 3])
def test_half_a_request_makes_room_however_young(half: int) -> None:
    there = [Connection(is_half=number == half) for number in range(4)]
    assert crowd(*there) == (True, [number == half for number in range(4)])


def test_of_half_requests_the_oldest_makes_room() -> None:
    halves = [Connection(is_half=True) for _ in range(3)]
    assert crowd(*halves) == (True, [True, False, False])


def test_who_has_sent_nothing_yet_is_let_be_for_a_moment() -> None:
    assert crowd(Connection(), Connection()) == (False, [False, False])
