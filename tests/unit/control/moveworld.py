"""Two hosts, one VM and the move machine between them: every history of a move, walked through.

The ledger does what `machine.step` says by `OUTCOMES` and `PARTS`. The hosts act as agents do: on
the newest order they have heard of, which may be an old one; what they have said is never
forgotten, so that it may come late, again, in another order, or not at all.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import or_
from typing import Literal

from roost.control.moves import machine
from roost.control.moves.machine import (
    OUTCOMES,
    PARTS,
    Cancel,
    Delete,
    Input,
    Late,
    Outcome,
    Recover,
    Refuse,
    Side,
    SourceFenced,
    Swallow,
    TargetLost,
)
from roost.model.flow import Move, Report
from roost.model.states import MoveMode, Phase, Seen

Fault = Literal["cancel", "late", "guest dies", "copy lost", "send fails", "stuck",
                "source fenced", "target fenced", "deleted", "recovered"]  # fmt: skip
#: What a host is told: a part of the move, or to destroy its copy; and whether all was sent.
Told = tuple[int, str, bool]
Said = tuple[Side, int, Seen, bool]  # the last: it will not try again

BEGUN = 5
#: Reports of an earlier move, from when the VM was the other way round.
OLD: tuple[Said, ...] = (
    ("target", BEGUN - 1, "moved", False),
    ("target", BEGUN - 2, "arrived", False),
    ("target", BEGUN - 1, "absent", False),
    ("source", BEGUN - 1, "arrived", False),
)
#: How many words of each host may still be on their way.
MOST_SAID = 2


class Broken(AssertionError):
    """A law of moves does not hold."""


@dataclass(frozen=True, slots=True)
class World:
    """One moment of a move. A host that is fenced has no copy that executes."""

    phase: Phase = "preparing"
    home: Side | None = "source"  # None: deleted, or started on a third host
    elsewhere: bool = False  # a third host has it
    generation: int = BEGUN
    orders: tuple[Told | None, Told | None] = ((BEGUN, "run", False), (BEGUN, "incoming", False))
    heard: tuple[Told, Told] = ((BEGUN - 1, "run", False), (0, "", False))
    source: str = "running"  # sending, switching, moved, stopped, none
    target: str = "none"  # ready, lost, arrived
    whole: bool = False  # all has come to the target, whoever knows
    gave_up: int = 0  # the order by which the source will not try again
    fenced: tuple[bool, bool] = (False, False)
    said: tuple[Said, ...] = OLD

    @property
    def at_rest(self) -> bool:
        """Say whether the move is over and its VM where it should be."""
        here = self.source if self.home == "source" else self.target
        return not self.phase and here in ("running", "arrived")


@dataclass
class Walk:
    """Every world that can be reached from the beginning of a move."""

    faults: frozenset[Fault]
    mode: MoveMode = "live"
    most: int = 400_000
    worlds: dict[World, list[World]] = field(default_factory=dict)  # by progress alone

    def run(self) -> None:
        """Visit every world; each must keep the laws, and be able to come to rest."""
        first = World()
        waiting, known = deque([first]), {first}
        while waiting:
            world = waiting.popleft()
            self._check(world)
            onward = list(dict.fromkeys(self.progress(world)))
            self.worlds[world] = onward
            for found in (*onward, *self.trouble(world)):
                if found not in known:
                    known.add(found)
                    waiting.append(found)
            assert len(known) < self.most, "the walk does not end"
        self._can_end()

    def _check(self, world: World) -> None:
        """See that at most one copy executes; a guest whose disk alone is sent lies meanwhile."""
        executing = ("running", "sending") if self.mode == "live" else ("running",)
        copies = (world.source in executing, world.target == "arrived", world.elsewhere)
        if sum(copies) > 1:
            raise Broken("two copies execute")

    def _can_end(self) -> None:
        before: dict[World, list[World]] = {}
        for world, onward in self.worlds.items():
            for found in onward:
                before.setdefault(found, []).append(world)
        ended = {world for world in self.worlds if self._is_end(world)}
        waiting = list(ended)
        while waiting:
            for world in before.get(waiting.pop(), ()):
                if world not in ended:
                    ended.add(world)
                    waiting.append(world)
        for world in self.worlds:
            if world not in ended:
                raise Broken(f"it never comes to rest: {world}")

    def _is_end(self, world: World) -> bool:
        if world.home is None:
            gone = (world.source == "none", world.target == "none")
            return all(map(or_, gone, world.fenced))
        home_lost = world.fenced[_number(world.home)]
        # Without its home the VM is recovered like any other; so is one that was never sent.
        return world.at_rest or (home_lost and world.phase in ("", "preparing"))

    # The ledger

    def progress(self, world: World) -> Iterator[World]:
        """Return what can happen when nothing goes wrong any more."""
        for said in world.said:
            side, generation, seen, failed = said
            failure = "permanent" if failed else None
            report = Report(generation, seen, "code", "message", failure)  # type: ignore[arg-type]
            yield from self.happen(world, machine.Seen(side, report))
        if world.fenced[0]:
            yield from self.happen(world, SourceFenced("operator" if world.fenced[1] else None))
        if world.fenced[1]:
            yield from self.happen(world, TargetLost("operator"))
        yield from self._hear(world)
        if not world.fenced[0]:
            yield from self._source(world)
        if not world.fenced[1]:
            yield from self._target(world)

    def happen(self, world: World, happened: Input) -> Iterator[World]:
        """Let the ledger do what the machine says."""
        for effect in machine.step(self._move(world), happened):
            if isinstance(effect, Refuse | Swallow):
                return
            world = self._follow(world, OUTCOMES[type(effect)])
            yield world

    def _move(self, world: World) -> Move:
        return Move("vm", 0, 1, world.phase, self.mode, begun=BEGUN, generation=world.generation)

    def _follow(self, world: World, outcome: Outcome) -> World:
        generation = world.generation + 1
        here, there = PARTS[outcome.phase]
        orders: list[Told | None] = [None, None]
        if outcome.phase:
            assert there is not None
            sent = outcome.phase == "landing"
            orders = [(generation, here, False), (generation, there, sent)]
        else:
            for side in outcome.destroys:
                orders[_number(side)] = (generation, "destroy", False)
            if outcome.home is not None:
                told = "boot" if outcome.boots else "run"
                orders[_number(outcome.home)] = (generation, told, False)
        return replace(
            world,
            phase=outcome.phase,
            home=outcome.home,
            generation=generation,
            orders=(orders[0], orders[1]),
        )

    # The hosts

    def _hear(self, world: World) -> Iterator[World]:
        for number in (0, 1):
            order = world.orders[number]
            if order is not None and order[0] > world.heard[number][0] and not world.fenced[number]:
                heard = list(world.heard)
                heard[number] = order
                yield replace(world, heard=(heard[0], heard[1]))

    def _source(self, world: World) -> Iterator[World]:
        generation, part, _ = world.heard[0]
        copy = world.source
        if part == "outgoing" and generation == world.gave_up:
            part = "outgoing in vain"
        match part, copy:
            case "destroy", _ if copy != "none":
                if world.home and world.target != "arrived" and not world.fenced[1]:
                    raise Broken("the source destroys the last copy")
                yield _say(replace(world, source="none"), "source", "absent")
            case (("run" | "boot"), ("sending" | "stopped")):
                yield _say(replace(world, source="running"), "source", "running")
            case (("run" | "boot"), ("moved" | "switching")) if generation > BEGUN:
                yield _say(replace(world, source="running"), "source", "running")
            case "outgoing", "running":
                yield replace(world, source="sending")
            case "outgoing", "sending" if world.target == "ready":
                yield _say(replace(world, source="switching"), "source", "switching")
            case "outgoing", "sending":  # nobody waits there
                yield _give_up(world, "running")
            case "outgoing", "stopped":  # there is no guest to send
                yield _give_up(world, "stopped")
            case "returning", "sending" if self.mode == "cold":
                yield _say(replace(world, source="stopped"), "source", "stopped")
            case "returning", "sending":
                yield _say(replace(world, source="running"), "source", "running")
        if copy == "switching" and world.target == "ready":
            yield replace(world, whole=True)
        if copy == "switching" and (world.whole or world.target == "arrived"):
            yield _say(replace(world, source="moved"), "source", "moved")
        if copy in ("running", "moved", "switching", "stopped"):
            failed = generation == world.gave_up
            yield _say(world, "source", copy, failed=failed)  # type: ignore[arg-type]

    def _target(self, world: World) -> Iterator[World]:
        _, part, sent = world.heard[1]
        copy = world.target
        match part, copy:
            case "destroy", ("ready" | "lost" | "arrived"):
                if world.home and (copy == "arrived" or world.source == "none"):
                    raise Broken("the target destroys the last copy")
                yield _say(replace(world, target="none", whole=False), "target", "absent")
            case "destroy" | "withdrawn", "none":
                yield _say(world, "target", "absent")
            case "withdrawn", ("ready" | "lost"):
                yield _say(replace(world, target="none", whole=False), "target", "absent")
            case "incoming", ("none" | "lost"):
                if sent:
                    yield _say(world, "target", "failed", failed=True)
                else:
                    yield _say(replace(world, target="ready", whole=False), "target", "ready")
            case "incoming", "ready":
                yield _say(world, "target", "ready")
                if sent and not world.whole:
                    yield _say(world, "target", "failed", failed=True)
        if copy == "ready" and world.whole and (self.mode == "live" or sent):
            yield _say(replace(world, target="arrived"), "target", "arrived")
        if copy == "arrived":
            yield _say(world, "target", "arrived")

    # What goes wrong

    def trouble(self, world: World) -> Iterator[World]:
        """Return what can happen when people, time and machines get in the way."""
        if "cancel" in self.faults:
            yield from self.happen(world, Cancel("cancelled"))
        if "deleted" in self.faults and world.home == "source":
            yield from self.happen(world, Delete())
        if "recovered" in self.faults and world.home == "source":
            yield from self._recover(world)
        if "late" in self.faults:
            yield from self.happen(world, Late("late"))
        if "guest dies" in self.faults and world.source in ("running", "sending", "switching"):
            yield replace(world, source="stopped")
        if "copy lost" in self.faults and world.target == "ready":
            yield replace(world, target="lost", whole=False)
        if "send fails" in self.faults and world.source == "sending":
            yield _give_up(world, "running" if self.mode == "live" else "stopped")
        if "stuck" in self.faults and world.source == "switching":
            yield _say(world, "source", "switching", failed=True)
        if {"source fenced", "recovered"} & self.faults and not world.fenced[0]:
            dead = "none" if world.source == "none" else "stopped"
            yield replace(world, fenced=(True, world.fenced[1]), source=dead)
        if "target fenced" in self.faults and not world.fenced[1]:
            dead = "none" if world.target == "none" else "lost"
            yield replace(world, fenced=(world.fenced[0], True), target=dead, whole=False)

    def _recover(self, world: World) -> Iterator[World]:
        """Start the VM on a third host, if its own is fenced and the machine lets it."""
        if world.fenced[0]:
            for found in self.happen(world, Recover()):
                yield replace(found, elsewhere=True)


def _number(side: Side) -> int:
    return 0 if side == "source" else 1


def _give_up(world: World, kept: Seen) -> World:
    world = replace(world, source=kept, gave_up=world.heard[0][0])
    return _say(world, "source", kept, failed=True)


def _say(world: World, side: Side, seen: Seen, *, failed: bool = False) -> World:
    """Let a host say something; of what it said earlier only the last few words are remembered."""
    word: Said = (side, world.heard[_number(side)][0], seen, failed)
    if word in world.said:
        return world
    own = [said for said in world.said[len(OLD) :] if said[0] == side]
    others = [said for said in world.said[len(OLD) :] if said[0] != side]
    kept = sorted([*own, word][-MOST_SAID:] + others)
    return replace(world, said=(*OLD, *kept))
