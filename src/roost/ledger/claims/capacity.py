"""The home of capacity: what hosts have promised and projects use, and how that changes.

| change  | claim rows                      | sums of the host           | sums of the project |
|---------|---------------------------------|----------------------------|---------------------|
| charge  | one more                        | grow, if they fit          | grow with a new VM  |
| release | one less                        | shrink                     | shrink with the VM  |
| resize  | new amounts                     | differ; what grows must fit | the same           |
| hold    | another kind, the same amounts  | stay                       | stay                |
| set     | stay                            | stay; the capacity is new  | stay                |

One statement for each kind of sum serves the claim path on SQLite and on PostgreSQL and ordinary
transactions: `UPDATE ... FROM` a source of rows that each of the three spells in its own way. A sum
is only ever changed relatively and compared in the same statement: what grows must fit, what
shrinks always may. Nothing else writes `committed` or `used`.

What grows must fit beside what the host holds for others (`holding`), of counters too. A claim that
ends, or draws on a hold, changes how much that is: its host is settled in the same transaction.

A claim is of a kind; a further one is a further constant here:

    run         the VM's home: its host has promised it room
    migrate_in  room on the target of a move, until the VM has arrived or the move is given up
    hold        room of a copy that its host has not destroyed yet
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, TextClause, bindparam, literal_column, select, text

from roost.ledger.claims.holding import held_for, held_limits, settle
from roost.ledger.claims.makingroom import hold_freed
from roost.ledger.schema.amounts import AMOUNTS, LIMITS, NOTHING, Amounts
from roost.ledger.schema.rows import ClaimRow, VMRow
from roost.ledger.schema.tables import claims, host_amounts, host_counters, projects
from roost.ledger.writes.transaction import Tx
from roost.model.kept import NOTHING_KEPT, Kept, counters_in_order
from roost.model.states import ClaimKind

RUN: Final = "run"
MIGRATE_IN: Final = "migrate_in"
#: A copy to clean up. It is stored as `hold`, because a version of roost that runs beside this one
#: reads the same rows; in Python it has the name of its purpose, a hold being a reservation there.
CLEANUP: Final = "hold"
CLAIM_KINDS = (RUN, MIGRATE_IN, CLEANUP)


#: Claims that are no VM's home, in the words of the index that lists them by host.
ELSEWHERE = claims.c.kind != literal_column(f"'{RUN}'")


def claim_id(vm: str, kind: str) -> str:
    """Return the key of a VM's claim of a kind; it has at most one of each."""
    return f"{vm}:{kind}"


# The statements, as text that all three paths share


class Charge(NamedTuple):
    """An UPDATE of sums by what is asked: rows of these columns, one for each key."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    update: str  # ends in its conditions: more may be added
    key: tuple[str, ...]  # columns of both that say which sum

    def of(self, asked: str) -> str:
        """Return the statement for rows of a table or a query in parentheses.

        It begins with UPDATE: of any other word Python's sqlite3 counts no rows.
        """
        return self.update.replace("@asked", asked)


def charge_hosts(names: Sequence[str] = LIMITS) -> Charge:
    """Return the statement that changes what hosts have promised.

    A generation that is given must be the host's: it stands for all that filters looked at.
    """
    return Charge(
        ("host", "generation", *names),
        ("bigint",) * (2 + len(names)),
        f"UPDATE host_amounts AS t SET\n  {_sums(names, 'committed')}\n"
        "FROM @asked AS u\nWHERE t.host = u.host\n"
        "  AND (u.generation IS NULL OR t.generation = u.generation)"
        + "".join(
            f"\n  AND (u.{n} <= 0 OR t.{n}_committed + t.{n}_held + u.{n} <= t.{n}_capacity)"
            for n in names
        ),
        ("host",),
    )


def charge_projects(names: Sequence[str] = LIMITS) -> Charge:
    """Return the statement that changes what projects use, within their quotas."""
    return Charge(
        ("name", *names),
        ("text", *("bigint",) * len(names)),
        f"UPDATE projects AS t SET\n  {_sums(names, 'used')}\n"
        "FROM @asked AS u\nWHERE t.name = u.name"
        + "".join(
            f"\n  AND (u.{n} <= 0 OR t.{n}_quota IS NULL OR t.{n}_used + u.{n} <= t.{n}_quota)"
            for n in names
        ),
        ("name",),
    )


def _sums(names: Sequence[str], suffix: str) -> str:
    return ",\n  ".join(f"{n}_{suffix} = t.{n}_{suffix} + u.{n}" for n in names)


CHARGE_HOSTS = charge_hosts()
CHARGE_PROJECTS = charge_projects()
CHARGE_COUNTERS = Charge(
    ("host", "counter", "amount"),
    ("bigint", "text", "bigint"),
    "UPDATE host_counters AS t SET committed = t.committed + u.amount\n"
    "FROM @asked AS u\nWHERE t.host = u.host AND t.counter = u.counter\n"
    "  AND (u.amount <= 0 OR t.committed + t.held + u.amount <= t.capacity)",
    ("host", "counter"),
)


@cache
def _in_transaction(charge: Charge) -> TextClause:
    """Return a charge of one row, with parameters by name, for either database."""
    row = ", ".join(
        f"CAST(:{name} AS {kind.upper()}) AS {name}"
        for name, kind in zip(charge.columns, charge.types, strict=True)
    )
    return text(charge.of(f"(SELECT {row})"))


def _charge(tx: Tx, charge: Charge, *row: int | str | None) -> bool:
    values = dict(zip(charge.columns, row, strict=True))
    return tx.connection.execute(_in_transaction(charge), values).rowcount == 1


_BY_ID = select(claims).where(claims.c.id.in_(bindparam("ids", expanding=True)))
_TO_CLEAN_UP = (
    select(claims)
    .where(ELSEWHERE, claims.c.host == bindparam("of_host"), claims.c.kind == CLEANUP)
    .order_by(claims.c.id)
)


# What a transaction does


def charge(tx: Tx, claim: ClaimRow, generation: int | None) -> bool:
    """Take what a new claim asks and insert it; False when the host has moved on or is full.

    Who is told False leaves the transaction. Without a generation the host's shape does not matter
    (its own VM grows in place).
    """
    if claim.is_special:
        settle(tx, claim.host, coming=claim)
    if not charge_host(tx, claim.host, claim.amounts, 1, generation):
        return False
    for counter, amount in counters_in(claim).items():
        if not _charge(tx, CHARGE_COUNTERS, claim.host, counter, amount):
            return False
    tx.insert(claims, msgspec.structs.asdict(claim))
    return True


def charge_host(
    tx: Tx, host: int, amounts: Amounts, vms: int, generation: int | None = None
) -> bool:
    """Change a host's sums; what grows must fit, else nothing changes and it says False."""
    return _charge(tx, CHARGE_HOSTS, host, generation, *amounts, vms)


def release(tx: Tx, claim: ClaimRow) -> None:
    """Delete a claim and give back what it took: to those who wait for room there, first of all."""
    if give_back(tx, claim):
        hold_freed(tx, claim.host)


def give_back(tx: Tx, claim: ClaimRow) -> bool:
    """Delete a claim and give back what it took; once, whoever else is about to do so.

    The deletion is what decides: two who have both read the claim meet at its row. For whoever
    charges the same room again at once: what is left of it is for `hold_freed` to give away.
    """
    if not tx.remove(claims, id=claim.id):
        return False
    charge_host(tx, claim.host, claim.amounts.negative(), -1)
    for counter, amount in counters_in(claim).items():
        _charge(tx, CHARGE_COUNTERS, claim.host, counter, -amount)
    if claim.is_special:
        settle(tx, claim.host)
    return True


def resize_claim(tx: Tx, claim: ClaimRow, amounts: Amounts) -> dict[str, Any] | None:
    """Give a claim new amounts and return its row; None when its host has no room for them."""
    if claim.is_special:
        resized = msgspec.structs.replace(claim, **amounts._asdict())
        settle(tx, claim.host, coming=resized, going=(claim.id,))
    if not charge_host(tx, claim.host, amounts.minus(claim.amounts), 0):
        if claim.is_special:
            settle(tx, claim.host)
        return None
    return tx.change(claims, {"id": claim.id}, **amounts._asdict())


def room_of(tx: Tx, claim: ClaimRow) -> Amounts:
    """Return how large a claim could be where it is: what its host has free, and what it has."""
    row = tx.find(host_amounts, lock=True, host=claim.host)
    assert row is not None
    free = Amounts.in_columns(row, "capacity").minus(Amounts.in_columns(row, "committed"))
    held = held_for(tx, claim) if claim.is_special else held_limits(row)
    return free.plus(claim.amounts).minus(Amounts._make(held[: len(AMOUNTS)]))


_PROMISED_COLUMNS = [f"{name}_{what}" for what in ("committed", "held") for name in LIMITS]
#: What hosts have promised in all, in the order of `LIMITS`, and then what they hold.
PROMISED = ", ".join(_PROMISED_COLUMNS)
_PROMISED = select(*(host_amounts.c[name] for name in _PROMISED_COLUMNS)).where(
    host_amounts.c.host == bindparam("of_host")
)

_GENERATION = select(host_amounts.c.generation).where(host_amounts.c.host == bindparam("of_host"))


class Promised(NamedTuple):
    """What a host has promised in all: amounts and claims as in `LIMITS`, and extended resources.

    Of the latter those of which something is promised, by name. `held` is what the host keeps for
    others beside it.
    """

    limits: tuple[int, ...]
    extended: tuple[tuple[str, int], ...] = ()
    held: Kept = NOTHING_KEPT

    def plus(
        self, amounts: Amounts, claims: int, extended: Iterable[tuple[str, int]]
    ) -> "Promised":
        """Return what is promised once so much more is."""
        sums = dict(self.extended)
        for name, amount in extended:
            sums[name] = sums.get(name, 0) + amount
        limits = tuple(map(sum, zip(self.limits, (*amounts, claims), strict=True)))
        more = tuple(sorted((name, n) for name, n in sums.items() if n))
        return Promised(limits, more, self.held)

    def is_as_read(self, now: "Promised", *, special: bool) -> bool:
        """Say whether the ledger has come to what a rule has read, but for less that is held.

        The host of a claim that ends or draws on a hold is settled with it, so what is held there
        is another amount for that claim than for any other, and is not compared.
        """
        same = (self.limits, self.extended) == (now.limits, now.extended)
        return same and (special or now.held.is_within(self.held))

    @staticmethod
    def of_rows(limits: Iterable[int], counters: Iterable[Sequence[Any]]) -> "Promised":
        """Return what the rows of `PROMISED` and of `PROMISED_EXTENDED` say."""
        sums, rows = tuple(limits), [tuple(row) for row in counters]
        extended = sorted((str(name).removeprefix("x:"), int(n)) for name, n, _ in rows if n)
        held = counters_in_order({str(name): int(n) for name, _, n in rows})
        half = len(LIMITS)
        return Promised(sums[:half], tuple(extended), Kept.of(sums[half:], held))


#: Whoever charges a counter has locked the host's amounts before.
PROMISED_EXTENDED = (
    "SELECT counter, committed, held FROM host_counters "
    "WHERE host = @host AND counter LIKE 'x:%' AND (committed <> 0 OR held <> 0)"
)
_PROMISED_EXTENDED = text(PROMISED_EXTENDED.replace("@host", ":of_host").replace("x:", "x\\:"))


def promised_on(tx: Tx, host: int) -> Promised:
    """Return what a host has promised, whose row this transaction has locked by charging it."""
    of = {"of_host": host}
    limits = tx.connection.execute(_PROMISED, of).one()
    return Promised.of_rows(limits, tx.connection.execute(_PROMISED_EXTENDED, of).all())


class ProjectUse(NamedTuple):
    """What a project's VMs ask for together and may ask for, both in the order of `LIMITS`."""

    used: tuple[int, ...]
    quota: tuple[int | None, ...]

    def plus(self, amounts: Amounts, vms: int) -> "ProjectUse":
        """Return a project's use once so much more is asked for."""
        used = tuple(map(sum, zip(self.used, (*amounts, vms), strict=True)))
        return ProjectUse(used, self.quota)

    @staticmethod
    def of_row(row: Sequence[int | None]) -> "ProjectUse":
        """Return what a row of `PROJECT_USE` says."""
        half = len(LIMITS)
        return ProjectUse(tuple(n or 0 for n in row[:half]), tuple(row[half:]))


#: What a project uses, and its quota.
PROJECT_USE = ", ".join(f"{name}_{what}" for what in ("used", "quota") for name in LIMITS)
_PROJECT_USE = select(
    *(projects.c[f"{name}_{what}"] for what in ("used", "quota") for name in LIMITS)
).where(projects.c.name == bindparam("of_project"))


def project_use(tx: Tx, project: str) -> ProjectUse | None:
    """Return what a project uses, and keep others from changing it until this commits."""
    query = _PROJECT_USE.with_for_update(read=True)
    found = tx.connection.execute(query, {"of_project": project}).one_or_none()
    return None if found is None else ProjectUse.of_row(found)


def generation_of(tx: Tx, host: int) -> int:
    """Return the generation of a host whose row this transaction has locked by charging it."""
    return int(tx.connection.execute(_GENERATION, {"of_host": host}).scalar_one())


def hold_instead(tx: Tx, claim: ClaimRow) -> dict[str, dict[str, Any]]:
    """Turn a claim into one to clean up: the same amounts, until the host's copy is gone."""
    held = claim_id(claim.vm, CLEANUP)
    row = {**msgspec.structs.asdict(claim), "id": held, "kind": CLEANUP}
    tx.remove(claims, id=claim.id)
    tx.insert(claims, row)
    return {held: row}


def enter_host(
    tx: Tx, host: int, capacity: Amounts, vms: int, counters: Mapping[str, int]
) -> dict[str, Any]:
    """Enter the capacity of a new host, of which nothing is promised; return its row."""
    row = {
        "host": host,
        "generation": 1,
        **_capacity(capacity, vms),
        **NOTHING.columns("committed"),
        "vms_committed": 0,
        **NOTHING.columns("held"),
        "vms_held": 0,
    }
    tx.insert(host_amounts, row)
    for counter, amount in counters.items():
        _enter_counter(tx, host, counter, amount)
    return row


def set_capacity(
    tx: Tx, host: int, capacity: Amounts, vms: int, counters: Mapping[str, int]
) -> None:
    """Replace what a host can promise; what it has promised stays, be it more."""
    tx.change(host_amounts, {"host": host}, **_capacity(capacity, vms))
    wanted = dict(counters)
    for row in tx.find_all(host_counters, host=host):
        where = {"host": host, "counter": row["counter"]}
        # A counter that is gone keeps what was promised of it, and can promise nothing more.
        tx.change(host_counters, where, capacity=wanted.pop(row["counter"], 0))
    for counter, amount in wanted.items():
        _enter_counter(tx, host, counter, amount)


def _capacity(capacity: Amounts, vms: int) -> dict[str, int]:
    return {**capacity.columns("capacity"), "vms_capacity": vms}


def _enter_counter(tx: Tx, host: int, counter: str, capacity: int) -> None:
    row = {"host": host, "counter": counter, "capacity": capacity, "committed": 0, "held": 0}
    tx.insert(host_counters, row)


def fits(tx: Tx, claim: ClaimRow, kept: Sequence[ClaimRow]) -> bool:
    """Say whether a host can promise a claim once what is kept there for it is given back.

    Windows may have passed since its holds were summed up, as in a ledger that was restored: the
    host is settled, so that `charge` finds what was found here.
    """
    settle(tx, claim.host)
    row = tx.find(host_amounts, lock=True, host=claim.host)
    if row is None:
        return False
    here = [each for each in kept if each.host == claim.host]
    given = Amounts.total(each.amounts for each in here)
    left = Amounts.in_columns(row, "committed").minus(given)
    held = held_for(tx, claim, [each.id for each in here])
    taken = left.plus(Amounts._make(held[: len(AMOUNTS)]))
    if not claim.amounts.fits(taken, Amounts.in_columns(row, "capacity")):
        return False
    if row["vms_committed"] - len(here) + held.vms + 1 > row["vms_capacity"]:
        return False
    kept_free = dict(held.counters)
    for counter, amount in counters_in(claim).items():
        found = tx.find(host_counters, lock=True, host=claim.host, counter=counter)
        back = sum(counters_in(each).get(counter, 0) for each in here)
        if found is None:
            return False
        promised = found["committed"] - back + kept_free.get(counter, 0)
        if amount > 0 and promised + amount > found["capacity"]:
            return False
    return True


def charge_project(tx: Tx, project: str, amounts: Amounts, vms: int) -> dict[str, Any]:
    """Change what a project uses; what grows must be within its quota.

    Returns the limits that it would pass, and changes nothing then; empty when it is done.
    """
    if _charge(tx, CHARGE_PROJECTS, project, *amounts, vms):
        return {}
    found = tx.find(projects, name=project)
    assert found is not None
    return passed_limits(found, amounts, vms)


def passed_limits(project: Mapping[str, Any], amounts: Amounts, vms: int) -> dict[str, Any]:
    """Name the limits of a project's row that so much more would pass."""
    return {
        name: {"quota": quota, "used": project[f"{name}_used"], "asked": more}
        for name, more in zip(LIMITS, (*amounts, vms), strict=True)
        if more > 0
        and (quota := project[f"{name}_quota"]) is not None
        and project[f"{name}_used"] + more > quota
    }


def uncharge_project(tx: Tx, vm: VMRow) -> None:
    """Give back the quota that a VM used."""
    _charge(tx, CHARGE_PROJECTS, vm.project, *vm.amounts.negative(), -1)


def counters_in(claim: ClaimRow) -> dict[str, int]:
    """Return the counters that a claim holds."""
    found: dict[str, int] = msgspec.json.decode(claim.counters) if claim.counters else {}
    return dict(sorted(found.items()))


def claims_of(tx: Tx, vm: str) -> dict[ClaimKind, ClaimRow]:
    """Return a VM's claims by kind."""
    ids = [claim_id(vm, kind) for kind in CLAIM_KINDS]
    return {row["kind"]: ClaimRow(**row) for row in tx.rows(_BY_ID, ids=ids)}


def cleanup_claims(connection: Connection, host: int) -> list[ClaimRow]:
    """Return what a host still holds for copies that it has to destroy."""
    found = connection.execute(_TO_CLEAN_UP, {"of_host": host})
    return [ClaimRow(**row) for row in found.mappings()]
