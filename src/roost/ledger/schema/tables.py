"""The schema of the ledger: every table, as SQLAlchemy Core knows it.

| table | what it holds | from events |
|---|---|---|
| vms, claims, groups, members, projects, hosts, tombstones, fences, tokens | the truth | folded |
| priority_classes | how important VMs are, by name | folded |
| flavors | the amounts of VMs, by name | folded |
| preemptions, displaced | room made for whom, by whom; who was stopped for it | folded |
| plans, plan_moves | migrations that were planned, and what became of each move | folded |
| topologies | the network between hosts, as it was described | folded |
| traffic | which VMs talk, as it was declared or learnt | folded |
| constraints, constraint_versions | rules about where VMs may be, and what they were | folded |
| policies, policy_versions | bundles of how VMs are placed, and what they were | folded |
| reservations | capacity kept for a project, a user or a purpose, and when | folded |
| holds | room that hosts keep for reservations and for VMs that wait, in windows of time | folded |
| violations | VMs that are where a hard rule does not want them, and since when | folded |
| relaxations | VMs that wait under a rule that relaxes, since when, and whether it has | folded |
| vm_specs | what owners asked for, by version; gone with the VM | folded |
| vm_user_data | what cloud-init is given, sealed: never in an event | no |
| sealing_keys | which key secrets are sealed with | no |
| host_amounts, host_counters | capacity, the sums of claims, and what holds keep | derived |
| host_liveness | how often a host was heard of, and how often fenced | no |
| conversations | which connection of a host's agent spoke last | no |
| idempotency, decisions | answers, reasons; for a while | no |
| asked, mixes | how often each kind of VM is asked for; what decisions took for typical | no |
| vm_ends, lifetimes | VMs that ended, until they are counted; counts by class and age | no |
| samples | readings that processes of the release before write; the next release drops it | no |
| leases, counters, events | who may act alone; sequences; what happened | no |
| folded_rows | the rows that events led to which are kept no longer (`base`) | no |
| doubts, roll_call, copies | after an old copy was restored: what is not sure yet | no |
| jobs and all that belongs to them | programs on rented machines, see `jobtables` | no |

Amounts that every host has are columns of `host_amounts`, one narrow row per host because every
create updates it; anything else that can run out (extended resources, device shares, NUMA cells)
is a row of `host_counters`. Both are only ever changed relatively and compared in the same
statement. Times are wall-clock milliseconds for people to read; nothing is decided by them.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
    or_,
)

from roost.ledger.schema.amounts import AMOUNTS, LIMITS

metadata = MetaData()

#: Stands for "no limit" where a value must be there to compare with.
UNLIMITED = 2**62


class _Real(Float[float]):
    """A float that is one when it comes back: SQLite's RETURNING makes 5 out of 5.0."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], float | None]:
        """Return what turns a value of the database into a float."""
        return lambda value: None if value is None else float(value)


def _table(name: str, *columns: Column[object] | UniqueConstraint | Index) -> Table:
    # Keys are text that grows with time, so the table itself is the index.
    return Table(name, metadata, *columns, sqlite_with_rowid=False)


def _text(name: str, *, nullable: bool = False, key: bool = False) -> Column[object]:
    return Column(name, Text, nullable=nullable, primary_key=key)


def _number(name: str, *, nullable: bool = False, key: bool = False) -> Column[object]:
    return Column(name, BigInteger, nullable=nullable, primary_key=key, autoincrement=False)


def _numbers(
    names: tuple[str, ...], suffix: str = "", *, nullable: bool = False
) -> list[Column[object]]:
    return [_number(name + suffix, nullable=nullable) for name in names]


def _sum(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False, server_default="0")


#: For the schemas of other modules: the same table, text, number and sum.
new_table, words, big_number, big_sum = _table, _text, _number, _sum

vms = _table(
    "vms",
    _text("id", key=True),
    _text("project"),
    _text("name"),
    _text("labels"),  # "\nkey=value\n..." or empty: found by LIKE
    *_numbers(AMOUNTS),
    _text("strategy"),
    _number("priority"),
    _text("on_no_fit"),
    _text("restart"),
    _text("desired"),  # running, stopped, absent
    _number("generation"),
    _number("restarts"),
    _number("host", nullable=True),
    _number("target", nullable=True),  # where it is moving to
    _text("phase"),  # of the move, see control/moves/machine.py; else empty
    _text("observed"),  # what its agent saw last; empty before
    _number("observed_generation"),
    _text("problem", nullable=True),  # JSON
    _text("pending", nullable=True),  # the last rejection, JSON
    _number("created_ms"),
    _text("move", nullable=True),  # how it is moved and how far that has come, JSON
    UniqueConstraint("project", "name", name="vms_name"),
)
Index("vms_host", vms.c.host)
Index(
    "vms_target",
    vms.c.target,
    sqlite_where=vms.c.target.is_not(None),
    postgresql_where=vms.c.target.is_not(None),
)
Index(
    "vms_waiting",
    vms.c.priority,
    sqlite_where=vms.c.pending.is_not(None),
    postgresql_where=vms.c.pending.is_not(None),
)

vm_specs = _table(
    "vm_specs",  # what a VM's owner asked for; each version is written once, gone with the VM
    _text("vm", key=True),
    _number("version", key=True),
    _text("spec"),  # JSON, see wire/spectext.py
)

vm_user_data = _table(
    "vm_user_data",  # a VM that has none has no row; gone with the VM
    _text("vm", key=True),
    _text("user_data"),
)

claims = _table(
    "claims",
    _text("id", key=True),  # VM:KIND
    _text("vm"),
    _number("host"),
    _text("kind"),  # run, migrate_in, hold
    *_numbers(AMOUNTS),
    _text("counters"),  # JSON {counter: amount} of host_counters, or empty
    _number("devices"),  # bit masks of positions on the host
    _number("cells"),
    _number("until_ms", nullable=True),  # when its VM is deleted; empty: it lives for ever
    _text("draws_on", nullable=True),  # the owner of holds that it takes its room from
)
# A VM's home is found by `vms_host`, its claims by their ids: only the others are listed by host,
# so that a create has two indexes less to write.
Index(
    "claims_elsewhere",
    claims.c.host,
    sqlite_where=claims.c.kind != literal_column("'run'"),
    postgresql_where=claims.c.kind != literal_column("'run'"),
)

#: Claims that matter to what a host must hold: those that end, and those that draw on a hold.
SPECIAL_CLAIM = or_(claims.c.until_ms.is_not(None), claims.c.draws_on.is_not(None))
Index(
    "claims_special",
    claims.c.host,
    sqlite_where=SPECIAL_CLAIM,
    postgresql_where=SPECIAL_CLAIM,
)

holds = _table(
    "holds",  # written and read with the row of its host's amounts locked, see holding.py
    _text("id", key=True),
    _number("host"),
    _text("kind"),  # reservation, preempt, plan, queue; wanted, see makingroom.py
    _text("owner"),  # whose claims may draw on it: a reservation's, a VM's or a plan's
    *_numbers(LIMITS),
    _text("windows"),  # JSON [[from, until or null]...] in wall-clock ms, ascending and disjoint
    _text("counters", nullable=True),  # as of claims; empty: none
)
Index("holds_host", holds.c.host)
Index("holds_owner", holds.c.owner)

groups = _table(
    "groups",
    _text("id", key=True),  # PROJECT/NAME; implicit ones PROJECT/~RULE...
    _text("project"),
    _text("name"),
    _text("rule"),
    _text("scope"),
    Column("hard", Boolean, nullable=False),
    _number("max_skew"),
    _number("weight"),
    _text("selector"),  # JSON of the labels that make a VM a member, or empty
    _number("generation"),  # grows with every change of membership or of members' hosts
    # The disruption budget: so many members at most, or so many thousandths of them; else none.
    _number("budget", nullable=True),
    _number("budget_share", nullable=True),
)

members = _table(
    "members",
    _text("group_id", key=True),
    _text("vm", key=True),
)
Index("members_vm", members.c.vm)

projects = _table(
    "projects",
    _text("name", key=True),
    *_numbers(LIMITS, "_quota", nullable=True),
    *_numbers(LIMITS, "_used"),
    _text("policy", nullable=True),  # of VMs that name none
)

hosts = _table(
    "hosts",
    _number("number", key=True),
    _text("name"),
    _text("inventory"),  # agentlink.Inventory as JSON
    _text("labels", nullable=True),  # set by an operator, JSON; else those of the inventory
    _text("health"),
    _text("admin"),
    _text("instance"),  # of the agent that registered last
    _text("version"),
    Column("guard_stop_s", _Real, nullable=True),
    _text("fenced", nullable=True),  # how, while it is
    _text("held"),  # JSON list of VMs it runs that are on no list
    _number("registered_ms"),
    # What an operator set in place of the inventory's, JSON, see wire/hostsettings.py.
    _text("settings", nullable=True),
    UniqueConstraint("name", name="hosts_name"),
)

host_amounts = _table(
    "host_amounts",
    _number("host", key=True),
    _number("generation"),  # grows when what filters look at changes: shape, labels, state
    *_numbers(LIMITS, "_capacity"),
    *_numbers(LIMITS, "_committed"),
    *(_sum(f"{name}_held") for name in LIMITS),  # kept free, see holding.py
)

host_counters = _table(
    "host_counters",
    _number("host", key=True),
    _text("counter", key=True),  # x:NAME, device:POSITION, cell:POSITION:cpu or :memory
    _number("capacity"),
    _number("committed"),
    _sum("held"),  # kept free, see holding.py
)

host_liveness = _table(
    "host_liveness",
    _number("host", key=True),
    _number("evidence"),  # grows with every flush of heartbeats
    _number("epoch"),  # grows when the host is fenced; renewals quote it
)

conversations = _table(
    "conversations",  # the connection of each host's agent that spoke last
    _number("host", key=True),
    _text("instance"),
    _number("number"),
)

fences = _table(
    "fences",
    _number("host", key=True),
    _number("epoch", key=True),
    _text("method"),  # lease, command, operator
    _text("proof"),
    _number("at_ms"),
)

tombstones = _table(
    "tombstones",
    _text("vm", key=True),
    _number("host", key=True),
    _number("generation"),
    _text("project"),
    _number("created_ms"),
)
Index("tombstones_host", tombstones.c.host)

tokens = _table(
    "tokens",
    _text("id", key=True),
    _text("kind"),  # api, join, agent
    _text("name"),
    _text("role"),
    _text("project", nullable=True),
    _text("host", nullable=True),
    _text("hash"),
    _number("created_ms"),
    _number("expires_ms", nullable=True),
)

idempotency = _table(
    "idempotency",
    _text("scope", key=True),
    _text("key", key=True),
    _text("digest"),
    _text("answer"),  # the VM's id, or a batch's answer as JSON
    _number("created_ms"),
)
Index("idempotency_age", idempotency.c.created_ms)

decisions = _table(
    "decisions",
    _text("vm", key=True),
    _number("snapshot", key=True),  # the sequence that the deciding columns had reached
    _text("cause"),  # create, retry, migrate, recover, resize
    _text("answer"),  # JSON
    _number("at_ms"),
)
Index("decisions_age", decisions.c.at_ms)

asked = _table(
    "asked",  # added to by every process, halved when it is much
    _text("kind", key=True),  # JSON, see wire/mixes.py
    _number("weight"),
    _number("seen_ms"),
)

mixes = _table(
    "mixes",  # typical requests that decisions went by
    _text("digest", key=True),
    _text("kinds"),  # JSON
    _number("at_ms"),
)
Index("mixes_age", mixes.c.at_ms)

vm_ends = _table(
    "vm_ends",  # written where a VM's row is removed; gone once it is counted in `lifetimes`
    _text("vm", key=True),
    _text("project"),
    _number("cpu_milli"),
    _number("memory_bytes"),
    _text("image"),  # its digest; empty: none
    _number("lived_s"),
    _number("at_ms"),
)

lifetimes = _table(
    "lifetimes",  # VMs that ended by class and age; halved when they are many
    _number("cpu_milli", key=True),
    _number("memory_bytes", key=True),
    _text("project", key=True),
    _text("image", key=True),
    _number("age_bin", key=True),  # see analysis/lifetime.py
    _number("weight"),  # 1,024 for each VM
    _number("seen_ms"),
)
Index("lifetimes_age", lifetimes.c.seen_ms)

# Readings are in a store of their own (`roost.series`); this is only written by older processes.
samples = _table(
    "samples",
    _number("host", key=True),
    _text("vm", key=True),
    _number("at_ms", key=True),
    _number("cpu_milli"),
    _number("memory_bytes"),
    _number("disk_bytes"),
    _text("more", nullable=True),  # readings by name, JSON
)
Index("samples_age", samples.c.at_ms)

leases = _table(
    "leases",
    _text("name", key=True),
    _text("holder"),
    _number("token"),  # grows with every change of holder; the holder's commits quote it
    _number("renewals"),
)

doubts = _table("doubts", _text("vm", key=True))  # VMs of which it is not known where they are

roll_call = _table(
    "roll_call",
    _number("host", key=True),
    Column("answered", Boolean, nullable=False),
)

copies = _table(
    "copies",  # what hosts have, or remember, of VMs in doubt
    _text("vm", key=True),
    _number("host", key=True),
    _number("generation"),
    _text("state"),  # agentlink.CopyState
    # What the host was told last; empty where an older agent or process says nothing of it.
    Column("restart", Text, nullable=False, server_default=""),
)
Index("copies_host", copies.c.host)

sealing_keys = _table(
    "sealing_keys",  # one row: the key that secrets are sealed with, see parts/sealedrows.py
    _number("slot", key=True),
    _text("fingerprint"),
    _number("at_ms"),
)

constraints = _table(
    "constraints",
    _text("id", key=True),  # NAME, or PROJECT/NAME
    _text("project"),  # whose VMs it is for, and whose it is; empty: the fleet's
    _text("name"),
    _text("description"),
    _text("expression"),  # in the rule language
    _text("form"),  # what it was written in: cel, tree
    _text("kind"),  # hard, soft
    _number("weight"),  # of a soft one, in thousandths
    _number("priority"),
    _text("selector"),  # JSON of the labels that VMs must have, or empty
    _text("vm"),  # the id of the only VM that it is for, or empty
    _text("policy", nullable=True),  # whose VMs it is for, if only those
    Column("enabled", Boolean, nullable=False),
    _number("expires_ms", nullable=True),
    _number("version"),
    _number("created_ms"),
    _text("created_by"),
    _number("changed_ms"),
    _text("changed_by"),
    _text("applies_when", nullable=True),  # it holds once this is true; empty: always
    _text("applies_until", nullable=True),  # and until this is; empty: until that is not
    _text("time_zone", nullable=True),  # in which both read the time; empty: UTC
    _number("dwell_s", nullable=True),  # the least time between two switches
    Column("active", Boolean, nullable=True),  # what it was switched to; empty: it has no condition
    _number("switched_ms", nullable=True),  # when; empty: never yet
    _number("relax_after_s", nullable=True),  # how long a VM waits until it is soft for it
)

relaxations = _table(
    "relaxations",  # VMs that wait under a rule that relaxes; gone when they wait no more
    _text("vm", key=True),
    _text("constraint_id", key=True),
    _number("version"),  # of the rule: a changed rule is waited for anew
    _number("since_ms"),
    _number("relaxed_ms", nullable=True),  # when the rule became soft for the VM
)

violations = _table(
    "violations",  # VMs that are where a hard rule does not want them
    _text("vm", key=True),
    _text("constraint_id", key=True),
    _number("host"),
    _text("part"),  # of the rule, that is not true there
    _number("since_ms"),
)

constraint_versions = _table(
    "constraint_versions",  # what a constraint was; gone with it
    _text("constraint_id", key=True),
    _number("version", key=True),
    _text("body"),  # the row, JSON
)

policies = _table(
    "policies",
    _text("name", key=True),
    _text("description"),
    _text("bundle"),  # what it says, JSON of model/policies.Bundle
    _number("version"),
    _number("created_ms"),
    _text("created_by"),
    _number("changed_ms"),
    _text("changed_by"),
)

reservations = _table(
    "reservations",  # where their room is kept are rows of holds, one for each unit
    _text("id", key=True),  # its name
    _text("description"),
    _text("owner_kind"),  # project, user, purpose
    _text("owner"),
    *_numbers(AMOUNTS),  # of one unit
    _number("units"),
    _text("hosts"),  # JSON list of the hosts that it may be on, or empty
    _text("zones"),  # JSON list, or empty
    _text("rule"),  # which hosts, in the rule language, or empty
    _number("from_ms"),
    _number("until_ms", nullable=True),  # its end; empty: none
    _text("recurrence"),  # RRULE, or empty
    _number("lasts_ms", nullable=True),  # of one occurrence
    _text("timezone"),  # IANA name, in which occurrences begin
    _text("windows"),  # JSON as of holds: when it is live
    _number("expanded_ms", nullable=True),  # occurrences are known up to here; empty: all are
    _text("unhonoured"),  # why some units have no host, or empty
    _number("version"),
    _number("created_ms"),
    _text("created_by"),
    _number("changed_ms"),
    _text("changed_by"),
    _text("held_as", nullable=True),  # the owner of its holds; empty: its name
    _text("asks", nullable=True),  # JSON: what a unit keeps beside amounts; empty: nothing
)

policy_versions = _table(
    "policy_versions",  # what a policy was; gone with it
    _text("policy", key=True),
    _number("version", key=True),
    _text("body"),  # the row, JSON
)

priority_classes = _table(
    "priority_classes",
    _text("name", key=True),
    _number("value"),  # the priority of its VMs; never another
    _text("preempts"),  # lower, never
    Column("is_default", Boolean, nullable=False),
    _text("description"),
    _number("created_ms"),
    _text("created_by"),
    _number("changed_ms"),
    _text("changed_by"),
)

flavors = _table(
    "flavors",
    _text("name", key=True),
    _text("demand"),  # JSON, as a create says it
    _text("description"),
    _number("created_ms"),
    _text("created_by"),
    _number("changed_ms"),
    _text("changed_by"),
)

preemptions = _table(
    "preemptions",  # room that is being made for a VM which waits; gone once it is there
    _text("vm", key=True),  # for whom
    _text("project"),
    _number("host"),
    _text("victims"),  # JSON, see control/preempt/record.py
    _text("phase"),  # moving, stopping, holding
    _number("begun_ms"),
    _number("priority"),
)
Index("preemptions_host", preemptions.c.host)

displaced = _table(
    "displaced",  # VMs that were stopped to make room; gone once they have run again
    _text("vm", key=True),
    _text("preemptor"),  # the VM for which
    _number("generation"),  # of the VM when it was stopped
    _number("at_ms"),
)

plans = _table(
    "plans",  # moves in waves, towards a goal; kept a while after they ended
    _text("id", key=True),
    _text("goal"),
    _text("state"),  # planned, waiting, running, paused, done, failed, cancelled
    _number("generation"),  # grows with every change of the plan or of its moves
    _text("asked"),  # JSON: goal, limits, window; see control/plans/record.py
    _text("found"),  # JSON: blockers, vetoes, before and after
    _number("wave"),  # the one under way; 0 before the first
    _number("replans"),  # how often the rest was planned anew
    _text("why"),  # why it waits, failed or was cancelled; or empty
    _number("starts_ms", nullable=True),  # not before; empty: at once
    _number("ends_ms", nullable=True),  # no move is begun after; empty: no limit
    _number("created_ms"),
    _text("created_by"),
    _number("begun_ms", nullable=True),
    _number("ended_ms", nullable=True),
)
Index("plans_created", plans.c.created_ms)

plan_moves = _table(
    "plan_moves",
    _text("plan", key=True),
    _number("number", key=True),  # in the order in which they are safe
    _number("wave"),
    _text("vm"),
    _text("name"),  # of the VM when it was planned
    _number("source"),
    _number("target"),
    _text("state"),  # planned, running, done, failed, dropped
    _text("why"),
    _number("draft"),  # 0 the first; each time the rest is planned anew one more
    _text("predicted"),  # JSON: what it was to cost
    _text("actual"),  # JSON: what it did cost; empty before
    _number("begun_ms", nullable=True),
    _number("ended_ms", nullable=True),
)
Index("plan_moves_vm", plan_moves.c.vm)
Index("plan_moves_ended", plan_moves.c.state, plan_moves.c.ended_ms)

topologies = _table(
    "topologies",
    _text("id", key=True),  # `fleet`: there is one
    _number("generation"),
    _text("document"),  # JSON, see wire/topology.py
    _number("changed_ms"),
    _text("changed_by"),
)

traffic = _table(
    "traffic",
    _text("id", key=True),  # who said it: `topology`, `declared` or `learnt`
    _number("generation"),
    _text("document"),  # JSON, see wire/topology.py
    _number("changed_ms"),
    _text("changed_by"),
)

#: `constraints` is used in the row `events` alone, which every commit that takes room changes last:
#: it grows with every change of a constraint, and whoever compares it there needs no other lock.
counters = _table(
    "counters",
    _text("name", key=True),
    _number("value"),
    Column("constraints", BigInteger, nullable=False, server_default="0"),
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    _number("at_ms"),
    _text("actor"),
    _text("kind"),
    _text("subject"),
    _text("project", nullable=True),
    _text("changes"),  # JSON {table: {key: row or null}}
    _text("note"),
    _text("tx"),  # the transaction, to find it again after an ambiguous commit
)
Index("events_subject", events.c.subject, events.c.seq)
Index("events_kind", events.c.kind, events.c.seq)

folded_rows = _table(
    "folded_rows",  # the last word on each row of events up to the counter `folded`
    _text("noun", key=True),  # a table, as events name it
    _text("key", key=True),
    _text("owner", nullable=True),  # the VM that it is gone with, though no event says so
    _text("row"),  # JSON, as in an event
)
Index("folded_rows_owner", folded_rows.c.owner)
