"""Policies as objects: list, show, create, change, roll back, compare, try, apply, delete.

A policy holds for its VMs, in its newest version, for whatever is placed from the moment it is
committed, by whichever process. VMs that it finds in the wrong place stay. One whose rules
contradict each other, or leave its VMs no host, is refused unless somebody says that this is meant
(`force`).
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import UnsetType
from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import Conflict
from roost.control.memory.follower import Follower
from roost.control.memory.roster import Roster
from roost.control.policies import writing
from roost.control.policies.bundling import bundle_of, changed_bundle
from roost.control.policies.checking import check_policies
from roost.control.policies.comparing import difference
from roost.control.policies.putting import broken_by, put_under
from roost.control.policies.reading import detail, listed, policy_row, version_row
from roost.control.policies.routes import policy_routes
from roost.control.policies.trying import Examined, Trial
from roost.control.vms.lookup import require_projects
from roost.ledger.schema.rows import PolicyRow
from roost.ledger.schema.tables import policies
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import find_row
from roost.ledger.writes.transaction import Tx
from roost.model.policies import Bundle
from roost.model.resources import BASE_RESOURCES
from roost.parts.access import Principal
from roost.parts.idempotency import find_keys, use_key
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.rules.fields import Fields
from roost.wire.bundles import bundle_text, read_bundle
from roost.wire.policies import (
    ApplyPolicy,
    BrokenRule,
    ChangePolicy,
    ComparePolicy,
    CreatePolicy,
    DryRunPolicy,
    ListPolicies,
    PolicyDetail,
    PolicyDiffBody,
    PolicyDryRunBody,
    PolicyPage,
    RollBackPolicy,
    VMPolicyBody,
)

_encode = msgspec.json.Encoder(order="sorted").encode


class Policies(Part):
    """Policies as objects: listed, created, changed, compared, tried, applied, deleted."""

    def __init__(self, store: Store, roster: Roster, follower: Follower, clock: Clock) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._clock = clock
        self._trial = Trial(store, roster)

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return policy_routes(self)

    # Reading

    async def list(self, asked: ListPolicies, who: Principal) -> PolicyPage:
        """Return policies in the order of their names."""
        return await self._store.read(lambda connection: listed(connection, asked, who))

    async def get(self, name: str, who: Principal) -> PolicyDetail:
        """Return one policy with its versions."""

        def question(connection: Connection) -> PolicyDetail:
            return detail(connection, policy_row(connection, name), who)

        return await self._store.read(question)

    async def diff(self, name: str, asked: ComparePolicy) -> PolicyDiffBody:
        """Say what two versions of a policy, or two policies, say differently."""

        def question(connection: Connection) -> PolicyDiffBody:
            now = policy_row(connection, name)
            if asked.other is not None:
                return difference(now, policy_row(connection, asked.other))
            last = asked.to or now.version
            first = asked.of or max(last - 1, 1)
            return difference(
                version_row(connection, name, first), version_row(connection, name, last)
            )

        return await self._store.read(question)

    async def dry_run(self, body: DryRunPolicy) -> PolicyDryRunBody:
        """Say what a policy would do with past requests and present VMs; nothing is written."""

        def question(connection: Connection) -> Bundle:
            if body.project is not None:
                require_projects(connection, [body.project])
            found = find_row(connection, policies, {"name": body.name})
            return Bundle() if found is None else read_bundle(found["bundle"])

        now = await self._store.read(question)
        after = await asyncio.to_thread(changed_bundle, now, body, self._fields())
        await self._follower.catch_up()
        return await self._trial.dry_run(body.name, now, after, body.project, body.requests)

    # Changing

    async def create(
        self, body: CreatePolicy, who: Principal, key: str | None = None
    ) -> PolicyDetail:
        """Make a policy; the same key with the same body gives the first answer."""
        # Rules of 1.6 MB take seconds to parse: not on the event loop.
        bundle = await asyncio.to_thread(bundle_of, body, self._fields())
        scope, digest = f"policy:{who.name}", sha256(_encode(body)).hexdigest()
        if key is not None:
            # Before it is tried: the fleet may be such by now that the policy would be refused.
            used = (await find_keys(self._store, [(scope, key)])).get((scope, key))
            if used is not None and used.digest == digest:
                return await self._store.read(lambda found: _made_before(found, used.answer, who))

        def change(tx: Tx) -> PolicyDetail:
            if use_key(tx, scope, key, digest, body.name) is None:
                writing.insert(tx, _new_row(tx, body, bundle, who))
            return _made_before(tx.connection, body.name, who)

        trial = await self._tried(body.name, bundle, force=body.force)
        made = await self._store.write(change, who.name)
        return msgspec.structs.replace(made, conflicts=trial.conflicts, notes=trial.notes)

    async def change(self, name: str, body: ChangePolicy, who: Principal) -> PolicyDetail:
        """Give a policy other values, as a new version; what was left out stays."""
        before = await self._store.read(lambda connection: policy_row(connection, name))
        now = read_bundle(before.bundle)
        bundle = await asyncio.to_thread(changed_bundle, now, body, self._fields())
        values = {"bundle": bundle_text(bundle)}
        if not isinstance(body.description, UnsetType):
            values["description"] = body.description
        trial = await self._tried(name, bundle, force=body.force)

        def change(tx: Tx) -> PolicyDetail:
            row = policy_row(tx.connection, name, lock=True)
            if body.version not in (row.version, msgspec.UNSET) or row.bundle != before.bundle:
                raise _changed(row, before.version)
            if all(getattr(row, field) == value for field, value in values.items()):
                return detail(tx.connection, row, who)
            return detail(tx.connection, writing.update(tx, row, "policy.changed", **values), who)

        made = await self._store.write(change, who.name)
        return msgspec.structs.replace(made, conflicts=trial.conflicts, notes=trial.notes)

    async def roll_back(self, name: str, body: RollBackPolicy, who: Principal) -> PolicyDetail:
        """Give a policy what it said at an earlier version, as a new version."""

        def question(connection: Connection) -> PolicyRow:
            policy_row(connection, name)
            return version_row(connection, name, body.version)

        earlier = await self._store.read(question)
        trial = await self._tried(name, read_bundle(earlier.bundle), force=body.force)

        def change(tx: Tx) -> PolicyDetail:
            row = policy_row(tx.connection, name, lock=True)
            if (row.bundle, row.description) == (earlier.bundle, earlier.description):
                return detail(tx.connection, row, who)
            note = f"to version {body.version}"
            now = writing.update(
                tx, row, "policy.rolled_back", note,
                bundle=earlier.bundle, description=earlier.description,
            )  # fmt: skip
            return detail(tx.connection, now, who)

        made = await self._store.write(change, who.name)
        return msgspec.structs.replace(made, conflicts=trial.conflicts, notes=trial.notes)

    async def delete(self, name: str, who: Principal) -> None:
        """Delete a policy that no project, rule or VM uses."""

        def change(tx: Tx) -> None:
            writing.remove(tx, policy_row(tx.connection, name, lock=True))

        await self._store.write(change, who.name)

    async def apply(self, project: str, body: ApplyPolicy, who: Principal) -> None:
        """Make a policy the default of a project's new VMs, or none."""
        await self._store.write(lambda tx: writing.set_default(tx, project, body.policy), who.name)

    async def put_under(
        self, ref: str, project: str | None, body: ApplyPolicy, who: Principal
    ) -> VMPolicyBody:
        """Put a VM that exists under another policy, or none; say what it breaks where it is."""
        put = await self._store.write(
            lambda tx: put_under(tx, ref, project, body.policy, who), who.name
        )
        await self._follower.catch_up()
        broken = broken_by(self._roster, put)
        host = self._roster.host_name(put.vm.host)
        return VMPolicyBody(
            vm=put.vm.id,
            name=put.vm.name,
            project=put.vm.project,
            policy=put.spec.policy or None,
            version=put.spec.policy_version or None,
            host=host,
            changed=put.changed,
            violations=[BrokenRule(rule=rule, part=part) for rule, part in broken],
        )

    def examine(self, connection: Connection, found: Examination) -> None:
        """See whether every policy that is named exists, and has its versions."""
        check_policies(connection, found)

    async def _tried(self, name: str, bundle: Bundle, *, force: bool) -> Examined:
        """Look for conflicts of a policy; refuse it for them unless they are meant."""
        await self._follower.catch_up()
        found = await self._trial.examine(name, bundle)
        if found.conflicts and not force:
            raise Conflict(
                found.conflicts[0].says,
                hint="Maybe see what roost policy dry-run says, or use --force if it is meant.",
                policy=name,
                conflicts=[msgspec.to_builtins(each) for each in found.conflicts],
            )
        return found

    def _fields(self) -> Fields:
        """Return what rules can read on this fleet, its own resources included."""
        names = self._roster.fleet.hosts.resources.values
        return Fields.of(tuple(names[len(BASE_RESOURCES) :]))


def _new_row(tx: Tx, body: CreatePolicy, bundle: Bundle, who: Principal) -> PolicyRow:
    return PolicyRow(
        name=body.name,
        description=body.description,
        bundle=bundle_text(bundle),
        created_ms=tx.at_ms,
        created_by=who.name,
        changed_ms=tx.at_ms,
        changed_by=who.name,
    )


def _changed(row: PolicyRow, seen: int) -> Conflict:
    return Conflict(
        f"policy {row.name!r} is at version {row.version}, not {seen}",
        hint="Maybe look at it again, then change it.",
        policy=row.name,
        version=row.version,
    )


def _made_before(connection: Connection, name: str, who: Principal) -> PolicyDetail:
    """Return the policy that an idempotency key made."""
    found = find_row(connection, policies, {"name": name})
    if found is None:
        raise Conflict(
            f"the idempotency key made policy {name!r}, which was deleted since", policy=name
        )
    return detail(connection, PolicyRow(**found), who)
