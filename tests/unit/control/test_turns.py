"""Hosts take turns with what they report: one that says much does not keep the others waiting."""

from roost.control.agents.intake import Turns


def test_one_host_that_says_much_does_not_keep_others_waiting() -> None:
    turns: Turns[tuple[int, int]] = Turns(30_000)
    turns.put(1, [(1, n) for n in range(20_000)])
    turns.put(2, [(2, 0), (2, 1)])
    first = turns.take(1000)
    assert (2, 0) in first
    assert (2, 1) in first
    assert len(first) <= 1000
    turns.put(2, [(2, 2)])
    assert (2, 2) in turns.take(1000)


def test_everything_is_taken_once_and_in_each_host_s_order() -> None:
    turns: Turns[tuple[int, int]] = Turns(30_000)
    for host in range(7):
        turns.put(host, [(host, n) for n in range(100 * host)])
    taken: list[tuple[int, int]] = []
    while turns:
        taken += turns.take(64)
    for host in range(7):
        assert [n for h, n in taken if h == host] == list(range(100 * host))


def test_what_waits_of_one_host_is_bounded_and_the_newest_stays() -> None:
    turns: Turns[int] = Turns(100)
    for at in range(1000):
        turns.put(1, [at])
    turns.put_back(1, [-1])
    assert turns.take(1000) == list(range(900, 1000))
