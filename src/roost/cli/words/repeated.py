"""A batch that is run again: VMs that are there already, as they are asked for, are no failures."""

from typing import TYPE_CHECKING

from roost.cli.words.applyfile import WantedFleet
from roost.cli.words.fleetdiff import FleetNow, plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.cli.words.fleetdiff import Step
    from roost.client import Client
    from roost.wire.bodies import BatchBody, CreateVM


def settle_repeated(client: "Client", asked: "Sequence[CreateVM]", found: "BatchBody") -> int:
    """Take VMs off the failures that are there already as asked; return how many they are."""
    if not found.failed:
        return 0
    projects = {each.name: each for each in client.list_projects().projects}
    own = "default" if "default" in projects or len(projects) != 1 else next(iter(projects))
    flavors = {each.name: each for each in client.list_flavors().flavors}
    there = {(vm.project, vm.name): vm for vm in client.all_vms()}
    now = FleetNow(projects, flavors, {}, {}, there, own)
    settled = 0
    for vm, item in zip(asked, found.results, strict=True):
        has = there.get((vm.project or own, vm.name))
        if item.error is None or has is None:
            continue
        if vm.flavor is not None and vm.flavor not in flavors:
            continue
        if steps := plan_of(WantedFleet(vms=[vm]), now).steps:
            item.error["message"] = f"{item.error.get('message', '')}{_differs(steps)}"
            continue
        item.error, item.id, item.host, item.state = None, has.id, has.host, has.state
        settled += 1
    found.failed -= settled
    return settled


def _differs(steps: "Sequence[Step]") -> str:
    """Return in which way a VM that is there is not as it is asked for."""
    return f"; it is there, but not as asked: {'; '.join(step.what for step in steps)}"
