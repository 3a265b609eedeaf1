"""Hosts take turns with what they report: one that says much does not keep the others waiting."""

from roost.control.memory.turns import Turns


def test_one_host_that_says_much_does_not_keep_others_waiting() -> None:
    turns: Turns[tuple[int, int]] = Turns(30_000, 100_000)
    turns.put(1, [(1, n) for n in range(20_000)])
    turns.put(2, [(2, 0), (2, 1)])
    first = turns.take(1000)
    assert (2, 0) in first
    assert (2, 1) in first
    assert len(first) <= 1000
    turns.put(2, [(2, 2)])
    assert (2, 2) in turns.take(1000)


def test_everything_is_taken_once_and_in_each_host_s_order() -> None:
    turns: Turns[tuple[int, int]] = Turns(30_000, 100_000)
    for host in range(7):
        turns.put(host, [(host, n) for n in range(100 * host)])
    taken: list[tuple[int, int]] = []
    while turns:
        taken += turns.take(64)
    for host in range(7):
        assert [n for h, n in taken if h == host] == list(range(100 * host))


def test_what_waits_of_one_host_is_bounded_and_the_newest_stays() -> None:
    turns: Turns[int] = Turns(100, 1000)
    for at in range(1000):
        turns.put(1, [at])
    turns.put_back(1, [-1])
    assert turns.take(1000) == list(range(900, 1000))


def test_what_waits_of_all_hosts_is_bounded_and_who_has_said_most_loses_the_oldest() -> None:
    turns: Turns[tuple[int, int]] = Turns(400, 1000)
    turns.put(1, [(1, n) for n in range(10)])
    for host in range(2, 9):
        turns.put(host, [(host, n) for n in range(300)])
    taken = turns.take(10_000)
    assert 500 < len(taken) <= 1000
    assert [n for host, n in taken if host == 1] == list(range(10))
    assert {host for host, n in taken if n == 299} == set(range(2, 9))
    for host in range(3000):
        turns.put(host, [(host, 0)])
        turns.put_back(host, [(host, 1)])
    assert len(turns.take(10_000)) <= 1000
    assert not turns
