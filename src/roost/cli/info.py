"""`roost info`: what the scheduler knows of one host."""

from typing import Annotated

import typer

from roost.cli.opening import chosen_output, open_engine
from roost.cli.options import FleetOption, OutputOption, VMsOption, reports_errors
from roost.cli.screen import Output, show, show_json
from roost.fleet.fleet import Fleet
from roost.model.hosts import Admin, Health
from roost.placement.scheduling_info import scheduling_info


@reports_errors
def info(
    host: Annotated[str, typer.Argument(metavar="HOST", help="Name of the host.")],
    fleet: FleetOption = None,
    vms: VMsOption = None,
    output: OutputOption = None,
) -> None:
    """Show what the scheduler knows of one host."""
    form = chosen_output(output)
    opened = open_engine(fleet, vms)
    if form is Output.JSON:
        show_json(_host_json(opened.fleet, host))
    else:
        show(scheduling_info(opened.fleet, host))


def _host_json(fleet: Fleet, name: str) -> dict[str, object]:
    row = fleet.row(name)
    units = {"cpu": "milli", "memory": "bytes", "disk": "bytes"}
    arrays = fleet.hosts.arrays
    resources = {}
    for number, resource in enumerate(fleet.hosts.resources.values):
        unit = units.get(resource, "count")
        used = int(fleet.hosts.used[row, number])
        resources[resource] = {
            f"committed_{unit}": int(arrays.committed[row, number]),
            f"held_{unit}": int(fleet.hosts.held[row, number]),
            f"capacity_{unit}": int(arrays.capacity[row, number]),
            f"used_{unit}": used if used >= 0 else None,
        }
    return {
        "host": name,
        "host_number": row,
        "health": Health(int(fleet.hosts.health[row])).label,
        "admin": Admin(int(fleet.hosts.admin[row])).label,
        "takes_vms": bool(arrays.takes[row]),
        "running_vms": int(arrays.vm_count[row]),
        "resources": resources,
    }
