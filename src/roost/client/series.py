"""Series in both clients: their calls and methods."""

from collections.abc import Sequence

from roost.client.binding import Method
from roost.client.calls import API, Call, path, query, reads
from roost.wire import series as wire
from roost.wire.profiles import ProfileBody
from roost.wire.reports import FleetReportBody

_read = reads(wire.SeriesBody)


def vm_series(
    vm: str,
    *,
    project: str | None = None,
    figures: Sequence[str] = (),
    resolution: wire.ResolutionWord | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Call[wire.SeriesBody]:
    """Return a part of what a VM has used over time; go on at `next_ms`, if there is one."""
    asked = query(
        project=project, figure=list(figures), resolution=resolution, since_ms=since_ms,
        until_ms=until_ms,
    )  # fmt: skip
    return Call("GET", path("vms", vm, "series"), _read, asked)


def host_series(
    host: str,
    *,
    figures: Sequence[str] = (),
    resolution: wire.ResolutionWord | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Call[wire.SeriesBody]:
    """Return a part of what a host has used over time; go on at `next_ms`, if there is one."""
    asked = query(figure=list(figures), resolution=resolution, since_ms=since_ms, until_ms=until_ms)
    return Call("GET", path("hosts", host, "series"), _read, asked)


def import_series(series: wire.ImportSeries) -> Call[wire.ImportedBody]:
    """Bring in readings that were made elsewhere; repeating it changes nothing."""
    return Call("POST", f"{API}/series:import", reads(wire.ImportedBody), body=series)


def vm_profile(
    vm: str, *, project: str | None = None, hours: int | None = None
) -> Call[ProfileBody]:
    """Return what a VM does over time, and what it will do in the coming hours."""
    asked = query(project=project, hours=hours)
    return Call("GET", path("vms", vm, "profile"), reads(ProfileBody), asked)


def fleet_report(*, top: int | None = None) -> Call[FleetReportBody]:
    """Return what a week says of all VMs and hosts, or how far that report is: then ask again."""
    return Call("GET", path("reports", "fleet"), reads(FleetReportBody), query(top=top))


class SeriesMethods:
    """What clients do with series, and with what is learnt of them."""

    vm_series = Method(vm_series)
    host_series = Method(host_series)
    import_series = Method(import_series)
    vm_profile = Method(vm_profile)
    fleet_report = Method(fleet_report)
