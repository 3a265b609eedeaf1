"""The twin of nearness: the ways between hosts found by trying every link again and again."""

from collections.abc import Sequence

from roost.model.constraints import Talk
from roost.topology.network import Network
from tests.naive.fleet import Ask, Row

HOP_US, PER_HUNDREDTH, MOST_CHARGED = 10, 1_000_000, 500
MOST_KBIT, MOST_US, MOST_PARTNERS = 10**8, 10**7, 64
SATURATED = 50

#: Latency in us, hops, and what is left in kbit/s, negative, so that the least way is the best.
Way = tuple[int, int, int]
_HERE: Way = (0, 0, -(2**50))
_kept: dict[tuple[int, str], dict[str, Way]] = {}
_alive: list[Network] = []  # so that no other network gets the same id


def ways_from(network: Network, host: str) -> dict[str, Way]:
    """Return the best way from a host to every node that it reaches."""
    known = _kept.get((id(network), host))
    if known is not None:
        return known
    found = {host: _HERE}
    again = True
    while again:
        again = False
        for link in network.links:
            left = round(link.bandwidth_mbit * (1 - link.utilisation) * 1000)
            for one, other in ((link.a, link.b), (link.b, link.a)):
                if one in found:
                    us, hops, kbit = found[one]
                    way = (us + round(link.latency_ms * 1000), hops + 1, -min(-kbit, left))
                    if other not in found or way < found[other]:
                        found[other], again = way, True
    _alive.append(network)
    _kept[id(network), host] = found
    return found


def way(row: Row, talk: Talk, ask: Ask) -> Way | None:
    """Return the way from a host to a partner's; None where none is known."""
    there = ask.partners[talk.key]
    if there == row.spec.name:
        return _HERE
    if ask.network is None:
        return None
    hosts = ask.network.hosts
    if there not in hosts or row.spec.name not in hosts:
        return None
    return ways_from(ask.network, there).get(row.spec.name)


def latency(row: Row, ask: Ask) -> bool:
    """Every partner with a bound is near enough; one that is nowhere asks nothing."""
    for talk in ask.request.talks:
        if talk.most_us is not None and talk.key in ask.partners:
            found = way(row, talk, ask)
            if found is None or found[0] > talk.most_us:
                return False
    return True


def bandwidth(row: Row, ask: Ask) -> bool:
    """The way to every partner with a bound is wide enough."""
    for talk in ask.request.talks:
        if talk.least_kbit is not None and talk.key in ask.partners:
            found = way(row, talk, ask)
            if found is None or -found[2] < talk.least_kbit:
                return False
    return True


def network_penalties(rows: Sequence[Row], ask: Ask) -> dict[int, int]:
    """Return what distance and saturated uplinks charge every host, in hundredths of a score."""
    sums = dict.fromkeys((row.number for row in rows), 0)
    talks = [each for each in ask.request.talks if each.kbit > 0]
    talks.sort(key=lambda each: each.key)
    talks.sort(key=lambda each: each.kbit, reverse=True)
    if ask.network is not None:
        for talk in talks[:MOST_PARTNERS]:
            if talk.key not in ask.partners:
                continue
            far: dict[int, int] = {}
            for row in rows:
                found = way(row, talk, ask)
                if found is not None:
                    far[row.number] = min(found[0] + HOP_US * found[1], MOST_US)
            most = max(far.values(), default=0)
            for row in rows:
                sums[row.number] += min(talk.kbit, MOST_KBIT) * far.get(row.number, most)
    unit = PER_HUNDREDTH
    while max(sums.values(), default=0) > unit * MOST_CHARGED:
        unit = -(-max(sums.values()) // MOST_CHARGED)
    charged = {number: -(-amount // unit) for number, amount in sums.items()}
    for row in rows:
        charged[row.number] += SATURATED if row.spec.name in ask.saturated else 0
    return charged
