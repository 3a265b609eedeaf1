"""Victims that were chosen and cannot leave: gone, or with a claim on an earlier host."""

from typing import Any

import pytest
from sqlalchemy import select

from roost.control.preempt.choosing import Choosing, Plan
from roost.ledger.tables import preemptions
from tests.integration.control.rig import OPERATOR, Rig, run
from tests.integration.control.test_preemption import classes, wait_for


@pytest.mark.parametrize("gone", ["old", "new"])
def test_a_create_is_answered_though_somebody_is_deleted_meanwhile(
    database_url: str, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        choose = Choosing.choose

        async def late(self: Choosing, *given: Any, **named: Any) -> Plan | None:
            plan = await choose(self, *given, **named)
            if named.get("but"):  # the VM is in the ledger, and its plan not yet
                await rig.plane.vms.delete(gone, None, OPERATOR)
                await rig.settle(check=False)
            return plan

        with monkeypatch.context() as broken:
            broken.setattr(Choosing, "choose", late)
            made = await rig.create("new", cpu=2, priority_class="high", on_no_fit="preempt")
        assert (made.name, made.state) == ("new", "pending")
        assert await rig.rows(select(preemptions)) == []
        if gone == "old":
            await wait_for(rig, "new", "h1")

    run(database_url, test)
