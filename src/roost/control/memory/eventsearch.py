"""Events that are looked for: by VM, host, kind, time and text, forwards or the newest of them.

A subject or a whole kind is found by an index. What no index helps is looked through in windows of
sequences, one read each, so that nobody's question holds up others. A moment is turned into a
sequence by halving: events are numbered in the order of their commits, and the clocks of
processes differ by less than `SKEW_MS`.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, or_, select

from roost.base.errors import InvalidRequest, NotFound
from roost.base.timestamps import read_timestamp
from roost.ledger.schema.tables import events, vms
from roost.parts.access import Principal
from roost.wire.queries import ListEvents

#: How far the clocks of control-plane processes may be apart.
SKEW_MS = 300_000
#: Sequences that one query looks through where no index helps.
WINDOW = 20_000

_e = events.c


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events are looked for; without anything, all of them."""

    subject: str | None = None
    kind: str | None = None
    kinds: str | None = None  # how kinds begin
    from_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None
    of_some: bool = False  # of all that there are, who asks may see some

    @property
    def is_indexed(self) -> bool:
        """Say whether an index finds them, and little else.

        A kind may have nearly all events: with a text or for a member most of them may be read in
        vain.
        """
        if self.subject is not None:
            return True
        return self.kind is not None and self.text is None and not self.of_some

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return what their rows fulfil."""
        found: list[ColumnElement[bool]] = []
        if self.subject is not None:
            found.append(_e.subject == self.subject)
        if self.kind is not None:
            found.append(_e.kind == self.kind)
        if self.kinds is not None:
            found.append(_e.kind.startswith(self.kinds, autoescape=True))
        if self.from_ms is not None:
            found.append(_e.at_ms >= self.from_ms)
        if self.until_ms is not None:
            found.append(_e.at_ms < self.until_ms)
        if self.text is not None:
            columns = (_e.note, _e.subject, _e.actor, _e.kind)
            found.append(or_(*(each.icontains(self.text, autoescape=True) for each in columns)))
        return found


EVERYTHING = Wanted()


def has_filters(asked: ListEvents) -> bool:
    """Say whether a query asks for some events only, or for the newest."""
    return asked.last is not None or any(
        (asked.vm, asked.host, asked.kind, asked.since_time, asked.until_time, asked.text)
    )


def wanted(connection: Connection, asked: ListEvents, who: Principal) -> Wanted:
    """Return which events a query asks for; refuse names that there are not."""
    if asked.vm and asked.host:
        raise InvalidRequest("an event is about a VM or about a host: which of them?")
    subject = f"host/{asked.host}" if asked.host else None
    if asked.vm:
        subject = f"vm/{_vm_id(connection, asked.vm, asked.project, who)}"
    exact = asked.kind if asked.kind and not asked.kind.endswith("*") else None
    begins = asked.kind.rstrip("*") if asked.kind and exact is None else None
    return Wanted(
        subject,
        exact,
        begins or None,
        read_timestamp(asked.since_time, "since_time") if asked.since_time else None,
        read_timestamp(asked.until_time, "until_time") if asked.until_time else None,
        asked.text or None,
        who.role == "member",
    )


def _vm_id(connection: Connection, ref: str, project: str | None, who: Principal) -> str:
    """Return the id of a VM; one that is deleted is known by its id alone.

    A name may look like an id. Of another project's VMs a member is told nothing, also not that
    there is one.
    """
    owner = project or who.home
    found = None
    if who.project in (None, owner):
        query = select(vms.c.id).where(vms.c.project == owner, vms.c.name == ref)
        found = connection.execute(query).scalar()
    if found is None and ref.startswith("vm-") and len(ref) > len("vm-") + 10:
        return ref
    if found is None:
        raise NotFound(f"no VM {ref!r}", hint="Maybe name one that was deleted by its id.", vm=ref)
    return str(found)


def forwards(since: int, want: Wanted, who: Principal) -> Select[Any]:
    """Return the query for events after a sequence, oldest first."""
    query = select(events).where(_e.seq > since, *want.conditions(), *_seen_by(who))
    if not want.is_indexed:
        query = query.where(_e.seq <= since + WINDOW)
    return query.order_by(_e.seq)


def backwards(before: int, want: Wanted, who: Principal) -> Select[Any]:
    """Return the query for events up to a sequence, newest first."""
    query = select(events).where(_e.seq <= before, *want.conditions(), *_seen_by(who))
    if not want.is_indexed:
        query = query.where(_e.seq > before - WINDOW)
    return query.order_by(_e.seq.desc())


def _seen_by(who: Principal) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if who.role == "member":
        found.append(_e.project == who.project)
    if who.role != "admin":
        found.append(_e.subject.not_like("token/%"))
    return found


def before_moment(connection: Connection, base: int, head: int, moment_ms: int) -> int:
    """Return a sequence before which nothing happened after a moment, found by halving."""
    low, high = base, head
    while low < high:
        middle = (low + high + 1) // 2
        at_ms = connection.execute(select(_e.at_ms).where(_e.seq == middle)).scalar()
        if at_ms is not None and at_ms < moment_ms - SKEW_MS:
            low = middle
        else:
            high = middle - 1
    return low
