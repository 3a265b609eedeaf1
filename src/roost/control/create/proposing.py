"""Propose a create to the ledger: the rows that it would write, and what they rest on."""

from roost.control.create.pending import PendingCreate
from roost.control.vms.views import placement_text
from roost.fleet.assign import mask_of
from roost.ledger.claims.proposals import Proposal
from roost.ledger.schema.rows import ClaimRow, VMRow, labels_text
from roost.ledger.writes.transaction import row_json
from roost.model.kept import counters_of
from roost.wire.answers import placement_body, rejection_json

GroupGenerations = tuple[tuple[str, int], ...]


def propose(ask: PendingCreate, groups: GroupGenerations, created_ms: int) -> Proposal:
    """Return the rows of a create, and what its placement rests on, for the claim statement.

    A create that waits for room rests on nothing but is a member of its groups.
    """
    body, request = ask.body, ask.request
    demand = request.demand
    ask.row = VMRow(
        id=ask.vm_id,
        project=body.project,
        name=body.name,
        labels=labels_text(body.labels) if body.labels else "",
        cpu_milli=demand.cpu_milli,
        memory_bytes=demand.memory_bytes,
        disk_bytes=demand.disk_bytes,
        strategy=ask.strategy,
        priority=body.priority,
        on_no_fit=body.on_no_fit,
        restart=request.restart or "here",
        desired="running" if body.start else "stopped",
        generation=1,
        created_ms=created_ms,
    )
    if ask.placement is None:
        assert ask.rejection is not None
        ask.row.pending = row_json(rejection_json(ask.rejection))
        # A policy that is deleted meanwhile must not have a VM, one that waits included.
        under = ask.constraints if request.policy else None
        return Proposal(
            ask.row, ask.spec, groups=groups, rules=ask.rules, constraints=under, key=ask.key
        )
    entry = ask.entry
    assert entry is not None
    ask.row.host = entry.number
    ask.shown = placement_body(ask.placement, entry.number)
    counters = counters_of(demand, ask.placement.devices, ask.placement.cells)
    claim = ClaimRow(
        id=ask.request.key,
        vm=ask.vm_id,
        host=entry.number,
        kind="run",
        cpu_milli=demand.cpu_milli,
        memory_bytes=demand.memory_bytes,
        disk_bytes=demand.disk_bytes,
        counters=row_json(dict(counters)) if counters else "",
        devices=mask_of(ask.placement.devices),
        cells=mask_of(ask.placement.cells),
        until_ms=ask.spec.spec.until_ms,
        draws_on=ask.draws_on,
    )
    return Proposal(
        ask.row,
        ask.spec,
        claim,
        ask.host_generation,
        counters,
        ask.group_generations,
        ask.rules,
        ask.constraints,
        placement_text(ask.shown),
        ask.key,
    )
