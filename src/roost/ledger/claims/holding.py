"""What hosts hold: the one place that writes `holds` and the sums of what hosts hold.

Those are `*_held` of host_amounts, and `held` of host_counters for extended resources, devices and
NUMA cells, whose rows are written under the lock of the host's amounts like these.

A hold keeps room on one host for an owner, in windows of time. Reservations, room that was freed by
preemption and room of the first in a queue are all holds; what a host must keep free of everybody
else is derived from its holds and from the claims that end or draw on one (`holdsums`), and the
claim path compares it with one more addend (`capacity.charge_hosts`).

    put_holds(tx, rows)     insert holds; False when a host has no room, and nothing is done
    drop_holds(tx, ids)     delete holds, by id
    holds_of(tx, owner)     the holds of an owner
    settle(tx, host)        write what a host must hold now, of its rows
    changed_holds(...)      the `holds` part of an event's changes
    lock_hosts(tx, hosts)   lock all hosts of a transaction that writes holds of several steps

A claim draws on the holds of the owner that its `draws_on` names, on its own host; what is left of
them is what is held. Charging, releasing and resizing such a claim settles its host by itself
(`capacity`). To give room that a hold keeps to a VM, drop the hold and charge the claim in one
transaction, or charge a claim that draws on it.

Every function locks the row of the host's amounts first, hosts in ascending order: holds and the
claims that matter to them are only written by who has that lock, so what is read under it is all
there is. What a transaction settles it says in a last event (`Tx.tell_held`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import bindparam, select

from roost.ledger.claims.holdsums import Held, Limits, Living, counters_held, held_on
from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.rows import ClaimRow, HoldRow
from roost.ledger.schema.tables import SPECIAL_CLAIM, claims, holds, host_amounts, host_counters
from roost.ledger.writes.transaction import Tx
from roost.model.kept import NOTHING_KEPT, Counters, Kept

#: The columns of what a host holds, in the order of `LIMITS`.
HELD = tuple(f"{name}_held" for name in LIMITS)

_SPECIAL = select(claims).where(SPECIAL_CLAIM, claims.c.host == bindparam("of_host"))


# The same for the claim path, which talks to its driver itself; @1, @2... are parameters.
READ_HOLDS = f"SELECT {', '.join(holds.c.keys())} FROM holds WHERE host = @1"
READ_SPECIAL = (
    f"SELECT {', '.join(claims.c.keys())} FROM claims "
    "WHERE host = @1 AND (until_ms IS NOT NULL OR draws_on IS NOT NULL)"
)
WRITE_HELD = (
    f"UPDATE host_amounts SET {', '.join(f'{name} = @{at}' for at, name in enumerate(HELD, 2))} "
    f"WHERE host = @1 AND ({' OR '.join(f'{name} <> @{at}' for at, name in enumerate(HELD, 2))})"
)
READ_COUNTERS_HELD = "SELECT counter, held FROM host_counters WHERE host = @1 AND held <> 0"
WRITE_COUNTER_HELD = "UPDATE host_counters SET held = @3 WHERE host = @1 AND counter = @2"
_COUNTERS_HELD = (
    select(host_counters.c.counter, host_counters.c.held)
    .where(host_counters.c.host == bindparam("of_host"), host_counters.c.held != 0)
    .order_by(host_counters.c.counter)
)


def held_by_rows(
    of_holds: Iterable[Sequence[Any]],
    of_claims: Iterable[Sequence[Any]],
    coming: Iterable[ClaimRow],
    moments: Iterable[int],
) -> Kept:
    """Return what a host must hold by what `READ_HOLDS` and `READ_SPECIAL` have found there."""
    names, columns = holds.c.keys(), claims.c.keys()
    kept = [Held.of(HoldRow(**dict(zip(names, row, strict=True)))) for row in of_holds]
    living = [Living.of(ClaimRow(**dict(zip(columns, row, strict=True)))) for row in of_claims]
    living += [Living.of(claim) for claim in coming]
    return _held_at_all(kept, living, moments)


def held_limits(row: Mapping[Any, Any]) -> Limits:
    """Return what a row of host_amounts says that the host holds."""
    return tuple(row[name] for name in HELD)


def changed_counters(before: Iterable[Sequence[Any]], held: Counters) -> list[tuple[str, int]]:
    """Return which counters of a host hold something else by now, and how much, in order."""
    found = {str(counter): int(amount) for counter, amount in before}
    wanted = dict(held)
    return [
        (counter, wanted.get(counter, 0))
        for counter in sorted(found | wanted)
        if found.get(counter, 0) != wanted.get(counter, 0)
    ]


def lock_hosts(tx: Tx, hosts: Iterable[int]) -> None:
    """Lock the amounts of hosts in the one order (`proposals`), before what is locked after hosts.

    Two steps that each lock theirs in ascending order are not ascending together.
    """
    for host in sorted(set(hosts)):
        tx.find(host_amounts, lock=True, host=host)


def settle(
    tx: Tx, host: int, *, coming: ClaimRow | None = None, going: Iterable[str] = ()
) -> Kept | None:
    """Write what a host must hold from now on, and return it; None when there is no such host.

    `coming` is a claim that is about to be charged there, and `going` are claims, by id, that are
    about to be released or are replaced by it.
    """
    row = tx.find(host_amounts, lock=True, host=host)
    if row is None:
        return None
    held = needed(tx, host, coming=coming, going=going)
    if held.limits != held_limits(row):
        tx.change(host_amounts, {"host": host}, **dict(zip(HELD, held.limits, strict=True)))
        tx.held[host] = held
    before = tx.connection.execute(_COUNTERS_HELD, {"of_host": host}).all()
    for counter, amount in changed_counters(before, held.counters):
        tx.change(host_counters, {"host": host, "counter": counter}, held=amount)
        tx.held[host] = held
    return held


def needed(tx: Tx, host: int, *, coming: ClaimRow | None = None, going: Iterable[str] = ()) -> Kept:
    """Return what a host must hold by its rows; its amounts are locked."""
    kept, living = _rows(tx, host, set(going))
    if coming is not None and coming.is_special:
        living.append(Living.of(coming))
    return _held_at_all(kept, living, _moments(tx))


def _moments(tx: Tx) -> tuple[int, ...]:
    return (tx.at_ms, *tx.perhaps_ms)


def _held_at_all(
    kept: Sequence[Held],
    living: Sequence[Living],
    moments: Iterable[int],
    until_ms: int | None = None,
    but: str | None = None,
) -> Kept:
    """Return what a host must hold, whichever of some moments it is now.

    They are more than one after a jump of the clock: what is over by one of them is given away for
    good, and may be still to come.
    """
    held = NOTHING_KEPT
    for now_ms in moments:
        held = held.greatest(held_on(kept, living, now_ms, until_ms, but))
    return held


def _rows(tx: Tx, host: int, without: set[str]) -> tuple[list[Held], list[Living]]:
    kept = [Held.of(row) for row in holds_on(tx, host)]
    if not kept:
        return [], []
    special = tx.rows(_SPECIAL, of_host=host)
    return kept, [Living.of(ClaimRow(**row)) for row in special if row["id"] not in without]


def held_for(tx: Tx, claim: ClaimRow, going: Iterable[str] = ()) -> Kept:
    """Return what a host holds against one claim: in its life, but for what it draws on.

    The claim itself, and those that are going, count as gone. The host's amounts are locked.
    """
    if not claim.is_special:
        return needed(tx, claim.host, going=going)
    kept, living = _rows(tx, claim.host, {claim.id, *going})
    return _held_at_all(kept, living, _moments(tx), claim.until_ms, claim.draws_on)


def put_holds(tx: Tx, rows: Sequence[HoldRow]) -> bool:
    """Insert holds; False when a host is gone or has no room for them, and nothing is done."""
    touched = sorted({row.host for row in rows})
    for host in touched:
        if tx.find(host_amounts, lock=True, host=host) is None:
            return False
    for row in rows:
        tx.insert(holds, msgspec.structs.asdict(row))
    if all(settle(tx, host) is not None and has_room(tx, host) for host in touched):
        return True
    for row in rows:
        tx.remove(holds, id=row.id)
    for host in touched:
        settle(tx, host)
    return False


def has_room(tx: Tx, host: int) -> bool:
    """Say whether what a host has promised and holds is within its capacity."""
    row = tx.find(host_amounts, host=host)
    return (
        row is not None
        and all(
            not row[f"{name}_held"]
            or row[f"{name}_committed"] + row[f"{name}_held"] <= row[f"{name}_capacity"]
            for name in LIMITS
        )
        and _has_counters(tx, host)
    )


def _has_counters(tx: Tx, host: int) -> bool:
    """Say whether a host has what its holds keep of counters, beside what is promised of them."""
    kept = counters_held(Held.of(row) for row in holds_on(tx, host))
    if not kept:
        return True
    there = {row["counter"]: row for row in tx.find_all(host_counters, host=host)}
    return all(
        (row := there.get(name)) is not None
        and (not row["held"] or row["committed"] + row["held"] <= row["capacity"])
        for name in kept
    )


def drop_holds(tx: Tx, rows: Iterable[HoldRow]) -> None:
    """Delete holds; what they kept is free from then on."""
    dropped = list(rows)
    touched = sorted({row.host for row in dropped})
    for host in touched:
        tx.find(host_amounts, lock=True, host=host)
    for row in dropped:
        tx.remove(holds, id=row.id)
    for host in touched:
        settle(tx, host)


def holds_of(tx: Tx, owner: str) -> list[HoldRow]:
    """Return the holds of an owner, in the order of their ids."""
    return [HoldRow(**row) for row in tx.find_all(holds, owner=owner)]


def holds_on(tx: Tx, host: int) -> list[HoldRow]:
    """Return the holds on a host, in the order of their ids."""
    return [HoldRow(**row) for row in tx.find_all(holds, host=host)]


def changed_holds(
    put: Iterable[HoldRow] = (), dropped: Iterable[HoldRow] = ()
) -> dict[str, HoldRow | None]:
    """Return what an event says of holds that were dropped and of those that were put."""
    gone: dict[str, HoldRow | None] = {row.id: None for row in dropped}
    return gone | {row.id: row for row in put}
