"""Ranked hosts for one VM: what each scores and why, and what every rule says of it.

The order is the engine's own, found by the search that places, so the first is where the VM would
go. A VM that has a host is judged as if it were nowhere, on a fleet without it: its host stands in
the ranking like any other, and the others say what would be gained there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from roost.fleet.layout import Int64Array
from roost.model.constraints import Constraints, Toleration
from roost.model.flow import PlaceRequest, ReasonCount, Rejection, ScoreTerm, Shortage
from roost.model.reasons import Reason
from roost.placement.engine import NO_FIT
from roost.placement.kernels.tally import WEIGHT_ONE
from roost.placement.rules.refusing import RuleRefusal, shortcomings
from roost.placement.verdicts import judge_hosts, shortages
from roost.placement.whatif import WhatIf

#: Hosts that can be ranked at once: the winner and as many runners-up as the engine looks for.
MOST_RANKED = 16


@dataclass(frozen=True, slots=True)
class RuleSays:
    """What one rule says of a host: whether it holds, what it charges, which parts are not true."""

    rule: str
    hard: bool
    charge: int  # of a soft rule, as an addend of the score
    parts: tuple[RuleRefusal, ...]

    @property
    def holds(self) -> bool:
        """Say whether every part of the rule is true there."""
        return not self.parts


@dataclass(frozen=True, slots=True)
class RankedHost:
    """A host in the ranking; one that does not fit has no rank and no score, but reasons."""

    rank: int | None
    host: str
    row: int
    score: int | None
    breakdown: tuple[ScoreTerm, ...]
    rules: tuple[RuleSays, ...]
    reasons: tuple[Reason, ...] = ()
    shortages: tuple[Shortage, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best hosts for a VM in order, and beside them the host that it has."""

    strategy: str
    hosts: int
    fitting: int
    ranked: tuple[RankedHost, ...]  # without the host that it has
    here: RankedHost | None
    rejection: Rejection | None  # why none of the others fits
    reasons: tuple[ReasonCount, ...]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a ranking begins with: hosts that come before all others, whatever these score.

    `tiers` says of each row how soon it comes; within a tier it is the score that counts.
    """

    rows: tuple[int, ...]
    tiers: Int64Array


NOTHING_AHEAD = Ahead((), np.zeros(0, np.int64))


def anywhere_but(request: PlaceRequest, here: str | None) -> PlaceRequest:
    """Return a request as a move asks: anywhere but where the VM is."""
    if here is None:
        return request
    excluded = (*request.constraints.excluded, here)
    return replace(request, constraints=replace(request.constraints, excluded=excluded))


def recommend(
    world: WhatIf,
    request: PlaceRequest,
    most: int,
    here: str | None = None,
    ahead: Ahead = NOTHING_AHEAD,
) -> Ranking:
    """Rank the best `most` hosts for a VM that is in no place of this world; `here` it was."""
    asked = anywhere_but(request, here)
    most = min(most, MOST_RANKED)
    found = world.find(asked, runners_up=most)
    judge = _Judge(world, asked)
    rows: list[int] = []
    if found is not None:
        others = [world.fleet.row(each.host) for each in found.runners_up]
        rows = list(dict.fromkeys((*ahead.rows, found.host_row, *others)))[:most]
    own = None
    if here is not None:
        own = _Judge(world, request).host(world.fleet.row(here), None)
    ranked, fitting = [], judge.fitting
    before = 0
    if own is not None and own.score is not None:
        fitting += 1
        before = _before(judge, own, rows, ahead.tiers)
        own = replace(own, rank=before + 1)
    for place, row in enumerate(rows):
        behind = own is not None and own.score is not None and place >= before
        ranked.append(judge.host(row, place + 1 + behind))
    return Ranking(
        strategy=world.strategy_of(request).name,
        hosts=len(world.fleet.present_rows()),
        fitting=fitting,
        ranked=tuple(ranked),
        here=own,
        rejection=None if found is not None else world.reject(asked),
        reasons=judge.verdicts.counts(),
    )


def _before(judge: "_Judge", own: RankedHost, rows: list[int], tiers: Int64Array) -> int:
    """Return how many hosts are better than the one that the VM has; ties go to lower numbers."""
    scores = judge.scores
    assert own.score is not None
    better = (scores < own.score) | ((scores == own.score) & (np.arange(len(scores)) < own.row))
    if len(tiers):
        sooner = (tiers < tiers[own.row]) & (scores != NO_FIT)
        better = sooner | ((tiers == tiers[own.row]) & better)
    if judge.by_score:
        return int(np.count_nonzero(better))
    # Turns and draws do not go by the score alone: what costs less comes first, then it itself.
    return sum(1 for row in rows if scores[row] < own.score)


class _Judge:
    """What one request means on every host of a world."""

    def __init__(self, world: WhatIf, request: PlaceRequest) -> None:
        self._world, self._request = world, request
        strategy = world.strategy_of(request)
        self.by_score = not (strategy.turns or strategy.draws)
        self._question = world.question(request)
        self.verdicts = judge_hosts(self._question)
        self._plain = world.scores(_without_wishes(world, request))
        self.scores = world.scores(request)
        self.fitting = int(np.count_nonzero(self.scores != NO_FIT))

    def host(self, row: int, rank: int | None) -> RankedHost:
        """Return what is to be said of one host."""
        score = int(self.scores[row])
        fits = score != NO_FIT
        rules = tuple(self._rules(row))
        index = int((self.verdicts.rows == row).argmax())
        return RankedHost(
            rank=rank,
            host=self._world.fleet.hosts.names[row],
            row=row,
            score=score if fits else None,
            breakdown=tuple(self._breakdown(row, score)) if fits else (),
            rules=rules,
            reasons=() if fits else self.verdicts.reasons(index),
            shortages=() if fits else shortages(self._question, row),
        )

    def _rules(self, row: int) -> Iterator[RuleSays]:
        terms, columns = self._question.terms, self._question.rules
        charges, _ = self._world.charges(self._request, row)
        refused = columns.refusals(terms, row)
        for bound in terms.rules:
            if bound.hard:
                parts = tuple(each for each in refused if each.rule == bound.name)
            else:
                parts = shortcomings(self._world.fleet, row, bound, columns.known)
            charge = charges.get(bound.name, 0) * WEIGHT_ONE
            yield RuleSays(bound.name, bound.hard, charge, parts)

    def _breakdown(self, row: int, score: int) -> Iterator[ScoreTerm]:
        """Yield the addends of a score: the strategy's, then what preferences and rules charge."""
        base = int(self._plain[row])
        terms = self._world.amounts_in_score(self._request, row)
        yield from terms
        # What devices and uplinks charge is no wish of the request: the plain score has it already.
        kept = self._world.devices_charge(self._request, row) * WEIGHT_ONE
        uplink = self._world.uplink_charge(row) * WEIGHT_ONE
        if rest := base - kept - uplink - sum(each.value for each in terms):
            yield ScoreTerm(self._world.strategy_of(self._request).rest, rest)
        charges, ranked = self._world.charges(self._request, row)
        charged = [ScoreTerm(f"rule {name}", each * WEIGHT_ONE) for name, each in charges.items()]
        if ranked:
            charged.append(ScoreTerm("priority of rules", ranked * WEIGHT_ONE))
        far = self._world.distance_charge(self._request, row)
        charged.append(ScoreTerm("distance to talkers", far * WEIGHT_ONE))
        added = self._world.peaks_charge(self._request, row)
        charged.append(ScoreTerm("peaks shared", added * WEIGHT_ONE))
        if penalty := score - base - sum(each.value for each in charged):
            yield ScoreTerm("preferences", penalty)
        if kept:
            charged.append(ScoreTerm("devices kept for others", kept))
        charged.append(ScoreTerm("saturated uplink", uplink))
        yield from (each for each in charged if each.value)


def _without_wishes(world: WhatIf, request: PlaceRequest) -> PlaceRequest:
    """Return a request that no preference, soft group or rule charges anything for."""
    names = tuple(bound.name for bound in world.terms_of(request).rules)
    return replace(
        request,
        constraints=Constraints(tolerations=(Toleration(),)),
        groups=(),
        talks=(),
        day=None,
        lifted=(*request.lifted, *names),
    )
