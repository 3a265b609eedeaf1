"""What a process knows of held room: reservations, holds, and the claims that matter to them.

Loaded and followed with the roster, so that what is held is of one view with the fleet. The sum
that ordinary VMs are compared with is the ledger's (`Roster`); here are the rows that it was made
of, for whoever may see more: a VM that ends, an owner, a reservation that is looked for a place.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from sqlalchemy import Connection, select

from roost.control.memory.heldprofile import HeldProfile, profile_of
from roost.ledger.claims.holdsums import FOREVER, Held, Living, held_on, owed, windows_of
from roost.ledger.schema.changes import CLAIMS, HOLDS, RESERVATIONS, Changes
from roost.ledger.schema.rows import ClaimRow, HoldRow, ReservationRow
from roost.ledger.schema.tables import SPECIAL_CLAIM, claims, holds, reservations
from roost.ledger.writes.statements import find_rows
from roost.model.kept import Kept, counters_in_order

_SPECIAL = select(claims).where(SPECIAL_CLAIM)
#: Profiles that are kept of one host.
_MOST_PROFILES = 16
_MOST_ALIKE = 256


class Life(NamedTuple):
    """How long a VM lives, and the owners of holds it may draw on, those to try first before."""

    until_ms: int | None = None
    draws: tuple[str, ...] = ()


ORDINARY = Life()


class Holdings:
    """Holds and special claims by host number, and reservations by id."""

    def __init__(self) -> None:
        self.reservations: dict[str, ReservationRow] = {}
        self.rows: dict[str, HoldRow] = {}
        self.holds: dict[int, dict[str, Held]] = defaultdict(dict)
        self.living: dict[int, dict[str, Living]] = defaultdict(dict)
        self.pending: dict[str, int] = {}  # claims of this process that the ledger has not yet
        self._homes: dict[str, int] = {}  # of special claims
        self._of_owner: dict[str, set[str]] = defaultdict(set)
        self._by_owner: dict[tuple[str, str], set[str]] = defaultdict(set)  # kind and name
        #: Of each host, by the owner that is left out; gone when anything on it changes.
        self._profiles: dict[int, dict[str | None, HeldProfile]] = {}
        self._alike: dict[tuple[tuple[Held, ...], str | None], HeldProfile] = {}
        self._starts: dict[str, list[int]] = {}  # of a reservation's windows, ascending

    def copy(self) -> "Holdings":
        """Return holdings of their own that say the same; rows and profiles never change."""
        made = Holdings()
        made.reservations, made.rows = dict(self.reservations), dict(self.rows)
        made.pending, made._homes = dict(self.pending), dict(self._homes)
        made.holds.update((host, dict(found)) for host, found in self.holds.items())
        made.living.update((host, dict(found)) for host, found in self.living.items())
        made._of_owner.update((owner, set(found)) for owner, found in self._of_owner.items())
        made._by_owner.update((owner, set(found)) for owner, found in self._by_owner.items())
        made._profiles = {host: dict(known) for host, known in self._profiles.items()}
        made._alike, made._starts = dict(self._alike), dict(self._starts)
        return made

    def load(self, connection: Connection) -> None:
        """Read everything from one view."""
        for row in find_rows(connection, reservations, {}):
            self._know(ReservationRow(**row))
        for row in find_rows(connection, holds, {}):
            self._put(HoldRow(**row))
        for found in connection.execute(_SPECIAL).mappings():
            self._put_claim(ClaimRow(**found))

    def follow(self, changes: Changes) -> list[int]:
        """Apply one event; return the hosts for which the ledger has decided claims of ours."""
        decided = []
        for key, reservation in changes.of(RESERVATIONS).items():
            self._forget(key)
            if reservation is not None:
                self._know(reservation)
        for key, hold in changes.of(HOLDS).items():
            self._drop(key)
            if hold is not None:
                self._put(hold)
        for key, claim in changes.of(CLAIMS).items():
            if (host := self.pending.pop(key, None)) is not None:
                decided.append(host)
            self.release(key)
            if claim is not None and claim.is_special:
                self._put_claim(claim)
        return decided

    def put(self, reservation: ReservationRow, units: Iterable[HoldRow]) -> None:
        """Take over a reservation and its units."""
        self._know(reservation)
        for unit in units:
            self._put(unit)

    def _know(self, row: ReservationRow) -> None:
        self.reservations[row.id] = row
        self._by_owner[row.owner_kind, row.owner].add(row.id)
        self._starts[row.id] = sorted(start for start, _ in windows_of(row.windows))

    def _forget(self, key: str) -> None:
        row = self.reservations.pop(key, None)
        if row is not None:
            self._by_owner[row.owner_kind, row.owner].discard(key)
            del self._starts[key]

    def has_begun(self, after_ms: int, now_ms: int) -> bool:
        """Say whether a reservation has become live since a moment: its owner may have room."""
        return any(
            bisect_right(starts, after_ms) < bisect_right(starts, now_ms)
            for starts in self._starts.values()
        )

    # Claims

    def charge(self, key: str, host: int, living: Living) -> None:
        """Count a claim that this process is about to make."""
        self.pending[key] = host
        self._homes[key] = host
        self.living[host][key] = living
        self._profiles.pop(host, None)

    def release(self, key: str) -> int | None:
        """Forget a claim; return its host if it mattered there."""
        self.pending.pop(key, None)
        host = self._homes.pop(key, None)
        if host is not None:
            self.living[host].pop(key, None)
            self._profiles.pop(host, None)
        return host

    def is_special(self, key: str) -> bool:
        """Say whether a claim ends or draws on a reservation."""
        return key in self._homes

    def _put_claim(self, claim: ClaimRow) -> None:
        self._homes[claim.id] = claim.host
        self.living[claim.host][claim.id] = Living.of(claim)
        self._profiles.pop(claim.host, None)

    # Holds

    def _put(self, row: HoldRow) -> None:
        self.rows[row.id] = row
        self.holds[row.host][row.id] = Held.of(row)
        self._profiles.pop(row.host, None)
        self._of_owner[row.owner].add(row.id)

    def _drop(self, key: str) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            self.holds[row.host].pop(key, None)
            self._profiles.pop(row.host, None)
            self._of_owner[row.owner].discard(key)

    def of_owner(self, owner: str) -> list[HoldRow]:
        """Return the holds of an owner, in the order of their ids."""
        return [self.rows[key] for key in sorted(self._of_owner.get(owner, ()))]

    def reservation_of(self, unit: HoldRow) -> ReservationRow | None:
        """Return the reservation that a unit is of."""
        return self.reservations.get(unit.id.rpartition("/")[0])

    def held_hosts(self) -> list[int]:
        """Return the hosts that hold something, in ascending order."""
        return sorted(host for host, found in self.holds.items() if found)

    def hosts_of(self, claim_ids: Iterable[str]) -> list[int]:
        """Return the hosts on which some of these claims end or draw, in ascending order."""
        return sorted({self._homes[key] for key in claim_ids if key in self._homes})

    # Questions

    def held(
        self, host: int, now_ms: int, life: Life = ORDINARY, without: Collection[str] = ()
    ) -> Kept:
        """Return what a host must hold of a VM with this life, which draws on its first choice."""
        but = life.draws[0] if life.draws else None
        if any(key in self.living.get(host, {}) for key in without):
            return held_on(self._kept(host), self._alive(host, without), now_ms, life.until_ms, but)
        known = self._profiles.setdefault(host, {})
        profile = known.get(but)
        if profile is None or not profile.holds_at(now_ms):
            if len(known) >= _MOST_PROFILES:
                known.clear()
            profile = known[but] = self._profile(host, now_ms, but)
        return profile.until(FOREVER if life.until_ms is None else life.until_ms)

    def owed(self, host: int, now_ms: int) -> Kept:
        """Return what a host must hold at the least, whenever it was settled."""
        return owed(self._kept(host), self._alive(host), now_ms)

    def _profile(self, host: int, now_ms: int, but: str | None) -> HeldProfile:
        """Reckon a host's profile; hosts with units of the same reservations alone have one."""
        kept, alive = self._kept(host), self._alive(host)
        if alive:
            return profile_of(kept, alive, now_ms, but)
        key = (tuple(kept), but)
        profile = self._alike.get(key)
        if profile is None or not profile.holds_at(now_ms):
            if len(self._alike) >= _MOST_ALIKE:
                self._alike.clear()
            profile = self._alike[key] = profile_of(kept, (), now_ms, but)
        return profile

    def may_hold_less(self, host: int, life: Life, without: Collection[str] = ()) -> bool:
        """Say whether less may be held of a VM with this life than of one that lives for ever.

        What begins before its end counts for both; what time has taken away is left to others.
        """
        if life.draws or any(key in self.living.get(host, {}) for key in without):
            return True
        end = life.until_ms
        return end is not None and any(
            hold.windows and hold.windows[-1][0] >= end for hold in self.holds[host].values()
        )

    def left(self, owner: str, host: int, now_ms: int, without: Collection[str] = ()) -> Kept:
        """Return what is left now of an owner's holds on a host; claims `without` are left out."""
        kept = [
            hold
            for hold in self._kept(host)
            if hold.owner == owner and is_live(hold.windows, now_ms)
        ]
        drawn = [each for each in self._alive(host, without) if each.draws_on == owner]
        limits, counters = [0, 0, 0, 0], Counter[str]()
        for each in kept:
            limits = [a + b for a, b in zip(limits, each.limits, strict=True)]
            counters.update(dict(each.counters))
        for claim in drawn:
            limits = [a - b for a, b in zip(limits, claim.limits, strict=True)]
            counters.subtract(dict(claim.counters))
        positive = {name: max(0, amount) for name, amount in counters.items()}
        return Kept.of((max(0, amount) for amount in limits), counters_in_order(positive))

    def parts_of(self, owner: str, host: int) -> frozenset[str]:
        """Return the devices and cells of a host that an owner holds at any time, as counters."""
        return frozenset(
            name
            for hold in self._kept(host)
            if hold.owner == owner
            for name, _ in hold.counters
            if not name.startswith("x:")
        )

    def is_live(self, owner: str, host: int, now_ms: int) -> bool:
        """Say whether an owner holds something on a host at this moment."""
        return any(
            hold.owner == owner and is_live(hold.windows, now_ms) for hold in self._kept(host)
        )

    def matters(self, host: int) -> bool:
        """Say whether what a host has room for depends on when."""
        return bool(self.holds.get(host) or self.living.get(host))

    def _kept(self, host: int) -> list[Held]:
        return list(self.holds.get(host, {}).values())

    def _alive(self, host: int, without: Collection[str] = ()) -> list[Living]:
        return [each for key, each in self.living.get(host, {}).items() if key not in without]

    def drawable(self, project: str, user: str, named: str, now_ms: int) -> tuple[str, ...]:
        """Return the owners of holds that a VM may draw on, the one to try first before.

        One that it names, in windows to come as well; else those of its project, then of whoever
        creates it, which are live now, the one that ends first before.
        """
        if named:
            row = self.reservations.get(named)
            return (row.holder,) if row is not None and may_draw(row, project, user) else ()
        found = []
        for place, owner in enumerate((("project", project), ("user", user))):
            for key in self._by_owner.get(owner, ()):
                holder = self.reservations[key].holder
                first = min(self._of_owner.get(holder, ()), default=None)
                if first is None:
                    continue
                ends = [
                    end
                    for start, end in self.holds[self.rows[first].host][first].windows
                    if start <= now_ms < end
                ]
                if ends:
                    found.append((place, min(ends), holder))
        return tuple(holder for _, _, holder in sorted(found))


def may_draw(row: ReservationRow, project: str, user: str) -> bool:
    """Say whether a VM of a project, created by somebody, may draw on a reservation.

    Whoever knows a purpose may name it.
    """
    owners = {"project": project, "user": user, "purpose": row.owner}
    return owners.get(row.owner_kind) == row.owner


def is_live(windows: Iterable[tuple[int, int]], now_ms: int) -> bool:
    """Say whether a moment is within some windows."""
    return any(start <= now_ms < end for start, end in windows)
