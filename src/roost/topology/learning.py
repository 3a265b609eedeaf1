"""Who talks is learnt from what is counted: a rate for each pair that halves in two days.

    rate(later) = rate * 2^(-passed / half-life) + sent * ln 2 / half-life

So a pair that always sends as much comes up to what it sends: to half of it in two days, to nine
tenths in a week. What happened only once is soon forgotten. What was sent is added up in whole
numbers before it is learnt from, so in whatever order readings come the same is learnt. Decay is
that of the time that has passed: it does not matter how often it is looked.
"""

from collections.abc import Mapping
from math import log
from typing import Final

#: VMs by id, the smaller first.
Pair = tuple[str, str]

HALF_LIFE_S: Final = 2 * 86_400.0
#: Pairs that are kept, and the rate below which a pair is forgotten, in Mbit/s.
MOST_LEARNT: Final = 2_000
LEAST_MBIT: Final = 0.001


def learn(
    known: Mapping[Pair, float],
    sent_bits: Mapping[Pair, int],
    passed_s: float,
    most: int = MOST_LEARNT,
) -> dict[Pair, float]:
    """Return Mbit/s by pair after some time in which so much was sent; the most first."""
    kept = 0.5 ** (max(0.0, passed_s) / HALF_LIFE_S)
    rates = {pair: rate * kept for pair, rate in known.items()}
    for pair, bits in sent_bits.items():
        rates[pair] = rates.get(pair, 0.0) + bits / 1e6 * log(2.0) / HALF_LIFE_S
    found = [(pair, rate) for pair, rate in rates.items() if rate >= LEAST_MBIT]
    found.sort(key=lambda each: (-each[1], each[0]))
    return dict(found[:most])


def unlike(known: Mapping[Pair, float], learnt: Mapping[Pair, float]) -> float:
    """Return how much of all traffic another matrix has elsewhere: 0.0 where both are the same."""
    moved = sum(abs(learnt.get(pair, 0.0) - known.get(pair, 0.0)) for pair in {*known, *learnt})
    return moved / (max(sum(known.values()), sum(learnt.values())) or 1.0)


def pair_of(one: str, other: str) -> Pair:
    """Return two VMs as they stand in a pair."""
    return (one, other) if one <= other else (other, one)
