"""Fencing: the record that a host is off, and the brake on the command that switches hosts off.

A partitioned control plane sees silence everywhere. Recording what a lease has proved harms nobody,
but a fence command cuts power: it is held back while most hosts are silent, and never has more than
a share of the fleet fenced at a time.
"""

from collections.abc import Iterable

from roost.base.errors import Conflict
from roost.control.hosts.registering import change_host
from roost.ledger.schema.rows import HostRow
from roost.ledger.schema.tables import fences, host_liveness
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx
from roost.model.states import FenceMethod

#: The share of the fleet that may be fenced by command at a time; one host always may.
FENCE_SHARE = 0.1


def why_not_fence(hosts: Iterable[HostRow], under_way: int, share: float = FENCE_SHARE) -> str:
    """Return why the fence command must not run for one more host; empty when it may."""
    fleet = list(hosts)
    # A host that is known to be off, or was shut by an operator, tells nothing about the network.
    # One whose lease ended is only silent.
    expected = [
        host
        for host in fleet
        if host.fenced in (None, "lease") and (host.admin == "open" or host.health == "online")
    ]
    heard = sum(host.health == "online" for host in expected)
    if len(expected) > 2 and 2 * heard <= len(expected):
        return f"only {heard} of {len(expected)} hosts are heard: the fault may be here"
    fenced = under_way + sum(host.fenced == "command" for host in fleet)
    most = max(1, int(share * len(fleet)))
    if fenced >= most:
        return f"{fenced} hosts are fenced by command already, and {most} may be"
    return ""


def fence(tx: Tx, host: HostRow, method: FenceMethod, proof: str, evidence: int | None) -> HostRow:
    """Record that a host is fenced, unless it was heard of since."""
    where = {"host": host.number}
    if evidence is not None:
        where["evidence"] = evidence
    fenced = tx.change(host_liveness, where, epoch=Plus(1))
    if fenced is None:
        raise Conflict(f"host {host.name!r} was heard of since", host=host.name)
    epoch = fenced["epoch"]
    row = {
        "host": host.number,
        "epoch": epoch,
        "method": method,
        "proof": proof,
        "at_ms": tx.at_ms,
    }
    tx.insert(fences, row)
    return change_host(
        tx,
        host.number,
        "host.fenced",
        note=f"{method}: {proof}",
        extra={"fences": {f"{host.number}|{epoch}": row}},
        health="offline",
        fenced=method,
    )
