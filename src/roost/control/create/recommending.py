"""Recommend hosts: the engine's ranking of a copy of the fleet, as a body.

Whoever may ask for a dry run may ask for this: it shows no more of other hosts than runners-up do.
"""

from roost.control.create.living import NO_ROOM, Room, look_ahead
from roost.ledger.claims.capacity import MIGRATE_IN, RUN, claim_id
from roost.ledger.schema.rows import VMRow
from roost.model.flow import PlaceRequest
from roost.placement.recommending import RankedHost, Ranking, RuleSays, recommend
from roost.placement.whatif import WhatIf
from roost.wire.answers import reason_bodies, rejection_body, rule_refusals, shortage_body
from roost.wire.bodies import ScoreTermBody
from roost.wire.recommendations import RecommendationBody, RecommendationsBody, RuleSaysBody


def recommend_new(
    world: WhatIf, request: PlaceRequest, most: int, room: Room = NO_ROOM
) -> RecommendationsBody:
    """Rank hosts for a VM that does not exist."""
    ahead = look_ahead(world, request, room, most)
    return _body(request.name, recommend(world, request, most, ahead=ahead), most)


def recommend_existing(
    world: WhatIf, vm: VMRow, request: PlaceRequest, most: int, room: Room = NO_ROOM
) -> RecommendationsBody:
    """Rank hosts for a VM as if it were nowhere, and the one that it has among them."""
    fleet, here = world.fleet, None
    for kind in (RUN, MIGRATE_IN):
        number = fleet.vms.numbers.get(claim_id(vm.id, kind))
        if number is not None:
            here = here or fleet.hosts.names[int(fleet.vms.host[number])]
            fleet.remove(number)  # the copy is thrown away
    ahead = look_ahead(world, request, room, most, here)
    return _body(vm.name, recommend(world, request, most, here, ahead), most)


def _body(vm: str, found: Ranking, most: int) -> RecommendationsBody:
    listed = list(found.ranked)
    own = found.here
    if own is not None:
        # Where nothing is better than what it has, that is the answer.
        place = own.rank - 1 if own.rank is not None else len(listed)
        listed.insert(min(place, len(listed)), own)
        if len(listed) > most and listed[-1] is not own:
            listed.pop()
    score = own.score if own is not None else None
    return RecommendationsBody(
        vm=vm,
        strategy=found.strategy,
        hosts=found.hosts,
        fitting=found.fitting,
        recommendations=[_host(each, each is own, score) for each in listed],
        reasons=reason_bodies(found.reasons),
        rejection=rejection_body(found.rejection) if found.rejection is not None else None,
    )


def _host(ranked: RankedHost, here: bool, score: int | None) -> RecommendationBody:
    gain = None
    if not here and score is not None and ranked.score is not None:
        gain = score - ranked.score
    return RecommendationBody(
        rank=ranked.rank,
        host=ranked.host,
        here=here,
        score=ranked.score,
        gain=gain,
        breakdown=[ScoreTermBody(name=t.name, value=t.value) for t in ranked.breakdown],
        rules=[_rule(each) for each in ranked.rules],
        reasons=[reason.value for reason in ranked.reasons],
        shortages=[shortage_body(each) for each in ranked.shortages],
    )


def _rule(says: RuleSays) -> RuleSaysBody:
    return RuleSaysBody(
        rule=says.rule,
        kind="hard" if says.hard else "soft",
        holds=says.holds,
        charge=says.charge,
        parts=rule_refusals(says.parts),
    )
