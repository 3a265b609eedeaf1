"""A process that has not heard of a tombstone begins no move to the host that has it."""

import pytest

from roost.base.errors import RoostError
from roost.control.vms.deletion import order_destruction
from roost.control.vms.lookup import relock
from roost.ledger.schema.rows import Changes
from roost.ledger.writes.transaction import Tx
from tests.integration.control.rig import Rig, run_two


def test_no_move_begins_to_a_host_that_has_a_tombstone_of_the_vm(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await first.host("h0", 4, 8)
        made = await first.running("a")
        await first.host("h1", 4, 8)
        await second.hear()
        number = first.number("h1")

        def bury(tx: Tx) -> None:
            changes: Changes = {}
            vm = relock(tx, made.id)
            order_destruction(tx, vm, number, changes)
            tx.event("vm.destroy_asked", f"vm/{vm.id}", changes, project=vm.project)

        await first.store.write(bury)
        with pytest.raises(RoostError):
            await second.migrate("a", "h1")
        row = await second.row("a")
        assert row is not None
        assert (row.phase, row.target) == ("", None)
        await first.settle()  # h1 says that it has nothing of it
        await second.hear()
        await second.migrate("a", "h1")
        await first.settle()
        await second.hear()
        assert await second.state("a") == ("running", "h1")

    run_two(postgres_url, test)
