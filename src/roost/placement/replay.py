"""Decision records: all that a decision depended on, from which the same decision comes again.

A record names the snapshot of the fleet and the digest of what its predictions were made from, not
their content: who replays brings that snapshot. What else went in (request, strategy, cursor, seed,
mix, rules) is in the record, and so is the answer, as the bytes that the replay must give again.
"""

from dataclasses import dataclass, replace

from roost.base.errors import Conflict
from roost.fleet.fleet import Fleet
from roost.model.flow import Answer, PlaceRequest
from roost.model.rules import NO_RULES, RuleSet
from roost.placement.engine import Engine, seed_of
from roost.placement.mix import Mix
from roost.placement.nearness import HostNetwork


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What a decision depended on, and what it was."""

    snapshot: int  # the fleet's version
    request: PlaceRequest  # with strategy and seed filled in
    cursor: int
    mix: Mix | None
    answer: Answer
    rules: RuleSet = NO_RULES
    clock: tuple[tuple[str, int], ...] = ()
    predicted: str = ""  # digest of what the predictions were made from; empty: nothing predicted
    network: HostNetwork | None = None

    def answer_bytes(self) -> bytes:
        """Return the answer in a form that is equal if and only if the answers are."""
        return repr(self.answer).encode()


def record(engine: Engine, request: PlaceRequest, *, runners_up: int = 2) -> DecisionRecord:
    """Decide, and keep all that the decision depended on."""
    strategy = engine.strategy_of(request)
    complete = replace(request, strategy=strategy.name, seed=seed_of(request))
    cursor = engine.cursor
    answer = engine.place(complete, runners_up=runners_up)
    mix = engine.mix if strategy.needs_mix else None
    clock = tuple(sorted(engine.clock.items()))
    return DecisionRecord(
        engine.fleet.version,
        complete,
        cursor,
        mix,
        answer,
        engine.rules,
        clock,
        engine.fleet.basis.digest,
        engine.network,
    )


def replay(decision: DecisionRecord, fleet: Fleet, *, runners_up: int = 2) -> Answer:
    """Decide again on the snapshot that the record names."""
    if fleet.version != decision.snapshot:
        raise Conflict(
            f"the record belongs to snapshot {decision.snapshot}, this fleet is {fleet.version}",
            snapshot=decision.snapshot,
            fleet=fleet.version,
        )
    if fleet.basis.digest != decision.predicted:
        raise Conflict(
            f"the record was decided by predictions {decision.predicted!r}, this fleet has "
            f"{fleet.basis.digest!r}",
            predicted=decision.predicted,
            fleet=fleet.basis.digest,
        )
    engine = Engine(
        fleet,
        mix=decision.mix,
        rules=decision.rules,
        clock=dict(decision.clock),
        network=decision.network,
    )
    return engine.place(decision.request, runners_up=runners_up, cursor=decision.cursor)
