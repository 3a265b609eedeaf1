"""Charge pending creates to the fleet in memory, before the ledger has decided.

A create is charged when it is placed, so no two of one process see the same room. What it rests on
(generations of its host and groups) is noted at once; `committing` has the ledger compare it, and
takes the charge back from whoever loses.
"""

import logging
from dataclasses import replace

from roost.base.errors import Conflict, PlacementContended
from roost.control.create.drawing import find_living, life_of
from roost.control.create.grouping import Grouping
from roost.control.create.living import living_of
from roost.control.create.pending import PendingCreate
from roost.control.create.telling import note_lines
from roost.control.create.underlying import spread_of
from roost.control.groups.defining import of_policy
from roost.control.memory.holdings import ORDINARY, Life
from roost.control.memory.roster import Roster
from roost.model.flow import Placement, PlaceRequest, Rejection

log = logging.getLogger("roost.admit")

#: Hosts that the answer to a single create names beside the one that was chosen.
RUNNERS_UP = 2


class FleetCharges:
    """Places creates on the fleet of one process and keeps it charged with them."""

    def __init__(self, roster: Roster, grouping: Grouping) -> None:
        self._roster, self._grouping = roster, grouping
        self._refusals: dict[object, Rejection] = {}
        self._refusals_version = -1

    def with_groups(self, asks: list[PendingCreate]) -> list[PendingCreate]:
        """Return those whose policy and groups are still there; the others have an error."""
        changes, book = self._roster.group_changes, self._roster.rulebook
        for ask in asks:
            if ask.request.policy and ask.request.policy not in book.policies:
                wrong = Conflict(
                    f"the policy {ask.request.policy!r} was deleted meanwhile",
                    policy=ask.request.policy,
                )
                ask.error, ask.placement, ask.rejection = wrong, None, None
                continue
            if not ask.groups or ask.groups_seen == changes:
                continue
            try:
                ask.groups = self._grouping.still_valid(ask.body, ask.groups)
            except Conflict as error:
                ask.error, ask.placement, ask.rejection = error, None, None
                continue
            ask.request = replace(ask.request, groups=ask.groups)
            ask.groups_seen = changes
        return [ask for ask in asks if ask.error is None]

    def place_one(self, ask: PendingCreate) -> None:
        """Place one create, with runners-up and the line that tells of it."""
        roster = self._roster
        ask.rejection, draws_on = None, None
        life = self.life(ask)
        if life is ORDINARY:
            placement = roster.engine.find(ask.request, runners_up=RUNNERS_UP)
            if placement is None:
                self._refused(ask, self._reject(ask.request))
                return
        else:
            found, draws_on = find_living(roster, ask.request, life)
            if not isinstance(found, Placement):
                assert found is not None
                self._refused(ask, found)
                return
            placement = found
        self.take(ask, placement, draws_on)
        if log.isEnabledFor(logging.INFO):
            note_lines(roster.fleet, [ask])

    def place_all(self, asks: list[PendingCreate], *, runners_up: int = 0) -> None:
        """Place many creates at once, each on the fleet as the ones before it have left it.

        With runners-up each has the line that tells of it, too, as if it were placed alone.
        """
        if any(self.life(ask) is not ORDINARY for ask in asks):
            for ask in asks:
                self.place_one(ask)
            return
        answers = self._roster.engine.place_batch(
            [ask.request for ask in asks], self._reject, runners_up=runners_up
        )
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Rejection):
                self._refused(ask, answer)
            else:
                ask.rejection, ask.draws_on = None, None
                self._charged(ask, answer)
        if runners_up and log.isEnabledFor(logging.INFO):
            note_lines(self._roster.fleet, asks)

    def _refused(self, ask: PendingCreate, rejection: Rejection) -> None:
        """Note a refusal, and the constraints and policies that it rests on."""
        ask.placement, ask.rejection = None, rejection
        ask.constraints = self._roster.rulebook.generation

    def life(self, ask: PendingCreate) -> Life:
        """Return how long a create's VM lives, and what it may draw on now."""
        return life_of(self._roster, ask.spec.spec, ask.body.project)

    def take(self, ask: PendingCreate, placement: Placement, draws_on: str | None = None) -> None:
        """Charge the fleet with a placement, and with what it draws on."""
        ask.draws_on = draws_on
        self._roster.engine.commit(ask.request, placement)
        self._charged(ask, placement)

    def _charged(self, ask: PendingCreate, placement: Placement) -> None:
        """Note a placement that the fleet is charged with, and what it rests on."""
        ask.placement, ask.charged = placement, True
        self._note_generations(ask)
        until, draws_on = ask.spec.spec.until_ms, ask.draws_on
        if until is not None or draws_on is not None:
            assert ask.entry is not None
            living = living_of(ask.request.demand, placement, Life(until), draws_on)
            self._roster.charge_living(ask.request.key, ask.entry.number, living)

    def _note_generations(self, ask: PendingCreate) -> None:
        """Note what a placement rests on at once: an event that comes next may change it."""
        assert ask.placement is not None
        ask.entry = self._roster.by_fleet_row[ask.placement.host_row]
        ask.host_generation = ask.entry.generation
        ask.group_generations = self.group_generations(ask)
        ask.constraints = self._roster.rulebook.generation

    def group_generations(self, ask: PendingCreate) -> tuple[tuple[str, int], ...]:
        """Return the generations that the groups of a create have now."""
        if not ask.groups:
            return ()
        return tuple((group, self._roster.groups[group].generation) for group in ask.groups)

    def release(self, ask: PendingCreate) -> None:
        """Give back what a create was charged with, if it was."""
        if ask.charged:
            self._roster.release(ask.request.key)
            self._roster.fleet.discount_vm(ask.request.key)
            ask.charged = False

    def refresh(self, ask: PendingCreate) -> None:
        """Take over label rules that came meanwhile: the VM is in their groups as well.

        A policy that spreads its VMs in another way by now is asked for again, by another create.
        """
        if ask.request.policy:
            spread = spread_of(self._roster, ask.request.policy)
            if spread is not None:
                group = of_policy(ask.body.project, ask.request.policy, spread).id
                if group not in ask.groups:
                    ask.error = PlacementContended(
                        f"the policy {ask.request.policy!r} was changed meanwhile",
                        policy=ask.request.policy,
                    )
        if ask.body.labels:
            ask.rules = self._roster.rules
            matching = self._roster.matching_groups(ask.body.project, ask.body.labels)
            ask.groups = tuple(sorted({*ask.groups, *matching}))
            ask.request = replace(ask.request, groups=ask.groups)

    def _reject(self, request: PlaceRequest) -> Rejection:
        """Explain a refusal; the same question on an unchanged fleet has the same answer."""
        engine = self._roster.engine
        if self._refusals_version != engine.fleet.version:
            self._refusals.clear()
            self._refusals_version = engine.fleet.version
        terms = engine.terms_of(request)
        key = (request.demand, terms, request.groups, request.strategy, request.project)
        found = self._refusals.get(key)
        if found is None:
            found = engine.reject(request)
            # Explaining tries fixes on the fleet and takes them back, which counts as changes.
            self._refusals_version = engine.fleet.version
            self._refusals[key] = found
        message = found.message.replace(repr(found.vm), repr(request.name), 1)
        return replace(found, vm=request.name, message=message)
