"""VMs, hosts, projects, tokens and events of a server as tables. Nothing is computed here.

What a driver only pretends to run is marked `virtual` wherever it is shown.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roost.base.units import format_bytes, format_cpu
from roost.cli.show import sentences, tables
from roost.cli.show.remedies import Live
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand, DeviceDemand
from roost.wire import bodies

STATE_STYLES = {
    "running": "green",
    "online": "green",
    "open": "green",
    "stopped": "dim",
    "paused": "cyan",
    "failed": "bold red",
    "unknown": "red",
    "offline": "bold red",
    "suspect": "yellow",
}

#: Characters of a remark in a list.
_REMARK = 80


def _state(word: str) -> Text:
    return Text(word, style=STATE_STYLES.get(word, "yellow"))


def _virtual(is_virtual: bool, otherwise: str = "") -> Text:
    return Text("virtual", style="magenta") if is_virtual else Text(otherwise)


def age(moment: str, now: datetime) -> str:
    """Return how long ago a moment of a body was: 40s, 5m, 3h, 12d."""
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def amounts(body: bodies.AmountsBody) -> str:
    """Return the amounts of a VM in a few words."""
    words = [sentences.amount("cpu", body.cpu_milli), format_bytes(body.memory_bytes)]
    words += [f"{format_bytes(body.disk_bytes)} disk"] if body.disk_bytes else []
    words += [f"{body.gpu} GPU"] if body.gpu else []
    words += [f"{number} {name}" for name, number in body.extended.items()]
    return ", ".join(words)


def asked_by(vm: bodies.VMBody) -> PlaceRequest:
    """Return what a VM asked for, as far as sentences speak of it."""
    asked = vm.demand
    return PlaceRequest(
        vm.name,
        Demand(
            asked.cpu_milli,
            asked.memory_bytes,
            asked.disk_bytes,
            tuple(asked.extended.items()),
            DeviceDemand(asked.gpu) if asked.gpu else None,
        ),
    )


def vms(listed: Sequence[bodies.VMBody], now: datetime) -> RenderableType:
    """Return VMs, one a line."""
    if not listed:
        return Text("no VMs", style="dim")
    numbers = ("cpu", "memory", "disk", "age")
    columns = ("name", "state", "host", "kind", "cpu", "memory", "disk", "project", "age", "")
    made = tables.table(*columns, right=numbers)
    for vm in listed:
        made.add_row(
            Text(vm.name, style="bold"),
            _state(vm.state),
            Text(vm.host or "-"),
            _virtual(vm.virtual, "real" if vm.host else "-"),
            format_cpu(vm.demand.cpu_milli),
            format_bytes(vm.demand.memory_bytes),
            format_bytes(vm.demand.disk_bytes) if vm.demand.disk_bytes else "-",
            Text(vm.project),
            age(vm.created_at, now),
            Text(remark(vm), style="dim"),
        )
    return made


def remark(vm: bodies.VMBody) -> str:
    """Return what is worth knowing in a list; the rest of a long message is for `show`."""
    if vm.migration is not None:
        to = f"{vm.migration.phase}: {vm.migration.source} to {vm.migration.target}"
        progress = vm.migration.progress
        return to if progress is None else f"{to}, {format_bytes(progress.left_bytes)} left"
    if vm.problem is not None:
        said = " ".join(vm.problem.message.split())
        return said if len(said) <= _REMARK else f"{said[: _REMARK - 3]}..."
    return vm.pending.code if vm.pending is not None else ""


def move(body: bodies.MigrationBody) -> str:
    """Return a move in a few words, with its numbers if its source told some."""
    said = f"{body.source} to {body.target} ({body.phase}"
    said += ")" if body.mode == "live" else f", {body.mode})"
    found = body.progress
    if found is None:
        return said
    numbers = [
        f"{format_bytes(found.sent_bytes)} sent",
        f"{format_bytes(found.left_bytes)} left",
    ]
    if found.dirty_bytes_per_s:
        numbers.append(f"{format_bytes(found.dirty_bytes_per_s)}/s written anew")
    if found.passes:
        numbers.append(f"pass {found.passes}")
    if found.throttle_percent:
        numbers.append(f"slowed down by {found.throttle_percent}%")
    if found.downtime_ms is not None:
        numbers.append(f"stood still for {found.downtime_ms} ms")
    return f"{said}: {', '.join(numbers)}"


def lines(pairs: Sequence[tuple[str, RenderableType]]) -> Table:
    """Return labels and what they say, one a line."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for label, said in pairs:
        made.add_row(label, said)
    return made


def vm(body: bodies.VMBody, now: datetime) -> RenderableType:
    """Return one VM with all that is known of it."""
    pairs: list[tuple[str, RenderableType]] = [
        ("name", Text(body.name)),
        ("id", Text(body.id)),
        ("project", Text(body.project)),
        ("state", Text.assemble(_state(body.state), f"  (wanted: {body.desired})")),
        ("host", Text.assemble(body.host or "none", "  ", _virtual(body.virtual))),
        ("demand", Text(_demand(body))),
        ("strategy", Text(body.strategy)),
        ("restart", Text(_restart_words(body))),
        ("priority", str(body.priority)),
        ("created", Text(f"{body.created_at}  ({age(body.created_at, now)} ago)")),
    ]
    if body.used is not None:
        pairs.append(("used", Text(_use(body.used, now))))
    if body.labels:
        pairs.append(("labels", Text(_pairs(body.labels))))
    if body.groups:
        pairs.append(("groups", Text(", ".join(body.groups))))
    pairs += _boot(body)
    if body.host is not None and not body.virtual:
        where = "" if body.project == "default" else f" --project {body.project}"
        pairs.append(("console", Text(f"roost vm console {body.name}{where}", style="dim")))
    if body.problem is not None:
        # A host may have something to say about a VM that runs, such as what waits for a restart.
        said = f"{body.problem.code}: {body.problem.message}"
        failed = "failed" in (body.state, body.observed)
        label, style = ("problem", "red") if failed else ("note", "yellow")
        pairs.append((label, Text(said, style=style)))
    if body.migration is not None:
        pairs.append(("moving", Text(move(body.migration))))
    parts: list[RenderableType] = [lines(pairs)]
    if body.placement is not None:
        parts += [Text(""), tables.placement(body.placement)]
    if body.pending is not None:
        parts += [Text(""), tables.rejection(body.pending, asked_by(body), Live(body))]
    return Group(*parts)


def _demand(body: bodies.VMBody) -> str:
    """Return the amounts of a VM, and the flavor that they are of."""
    flavor = f"  (flavor {body.flavor})" if body.flavor else ""
    return f"{amounts(body.demand)}{flavor}"


def _restart_words(body: bodies.VMBody) -> str:
    """Return where a VM starts after the loss of its host, and what that still waits for."""
    if body.restart_acknowledged:
        return body.restart
    return f"{body.restart}  (its host has not said yet that it stops it when its lease ends)"


def _use(used: bodies.UseBody, now: datetime) -> str:
    """Return what a VM uses, in a line: amounts, and the traffic that is known."""
    parts = [f"{format_cpu(used.cpu_milli)} cores", f"{format_bytes(used.memory_bytes)} memory"]
    parts.append(f"{format_bytes(used.disk_bytes)} disk")
    for label, rate in (
        ("read", used.disk_read_bytes_per_s),
        ("written", used.disk_write_bytes_per_s),
        ("received", used.net_received_bytes_per_s),
        ("sent", used.net_sent_bytes_per_s),
    ):
        if rate is not None:
            parts.append(f"{format_bytes(rate)}/s {label}")
    return f"{', '.join(parts)}  ({age(used.at, now)} ago)"


def _boot(body: bodies.VMBody) -> list[tuple[str, RenderableType]]:
    """Return what a VM boots and how it is wired, if it was said."""
    pairs: list[tuple[str, RenderableType]] = []
    if (boot := body.boot) is not None:
        parts = (("image", boot.image), ("kernel", boot.kernel), ("initrd", boot.initrd))
        pairs += [(label, Text(_image(part))) for label, part in parts if part is not None]
        pairs += [("cmdline", Text(boot.cmdline))] if boot.cmdline else []
    pairs += [("nic", Text(_nic(nic))) for nic in body.nics]
    return pairs


def _image(part: bodies.ImageBody) -> str:
    # Twelve digits tell images apart; -o json has them all.
    digest = part.digest[: len("sha256:") + 12]
    return f"{part.url}  ({digest}...)" if part.url else f"{digest}..."


def _nic(nic: bodies.NicBody) -> str:
    said = f"tap on {nic.bridge}" if nic.mode == "tap" else nic.mode
    said += f", {nic.mac}" if nic.mac else ""
    return f"{said}, forwards {', '.join(nic.forward)}" if nic.forward else said


def _pairs(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" if value else key for key, value in labels.items())


def created(body: bodies.VMBody) -> RenderableType:
    """Return what became of a VM that was asked for: where it is, and why there."""
    if body.host is None:
        head = Text.assemble(
            (body.name, "bold"), " is ", ("pending", "yellow"), f": no host fits yet  ({body.id})"
        )
        if body.pending is None:
            return head
        return Group(head, *tables.why_not(body.pending, Live(body)))
    head = Text.assemble(
        (body.name, "bold"), " is on ", (body.host, "bold green"), "  ",
        _virtual(body.virtual), "  " if body.virtual else "", _state(body.state),
        f"  ({amounts(body.demand)}; {body.id})",
    )  # fmt: skip
    if body.placement is None:
        return head
    found = body.placement
    why = [Text(f"why {found.host}: {sentences.why(found)}")]
    if found.foreseen:
        why.append(Text(f"predicted of it then: {sentences.foreseen(found.foreseen)}"))
    return Group(head, *why, Text("scores: lower is better", style="dim"))


def batch(body: bodies.BatchBody) -> RenderableType:
    """Return what became of each VM of a batch; failures first, for they want reading."""
    style = "bold red" if body.failed else "bold green"
    head = f"{body.created} created, {body.queued} queued, {body.failed} failed"
    made = tables.table("name", "state", "host", "")
    ordered = sorted(body.results, key=lambda each: each.error is None)
    for item in ordered[: tables.SOME_ROWS]:
        error = item.error or {}
        made.add_row(
            Text(item.name, style="bold"),
            _state(item.state or "failed"),
            Text(item.host or "-"),
            Text(str(error.get("message", "")), style="red"),
        )
    if body.together is not None:
        head += f" ({body.together.how})"
    parts: list[RenderableType] = [Text(head, style=style), made]
    left = len(ordered) - tables.SOME_ROWS
    if left > 0:
        parts.append(Text(f"... and {left} more; -o json lists them", style="dim"))
    return Group(*parts)


def hosts(listed: Sequence[bodies.HostBody]) -> RenderableType:
    """Return hosts, one a line."""
    if not listed:
        return Text("no hosts", style="dim")
    columns = ("name", "health", "admin", "driver", "zone", "rack", "VMs", "cpu", "memory", "disk")
    made = tables.table(*columns, right=("VMs", "cpu", "memory", "disk"))
    for host in listed:
        made.add_row(
            Text(host.name, style="bold"),
            Text("unusable", style="bold red") if host.unusable else _state(host.health),
            _admitting(host),
            _virtual(host.virtual, host.driver),
            Text(host.zone or "-"),
            Text(host.rack or "-"),
            str(host.vms),
            _share(host.cpu_milli, format_cpu),
            _share(host.memory_bytes, format_bytes),
            _share(host.disk_bytes, format_bytes),
        )
    return Group(made, Text("amounts: committed / capacity", style="dim"))


def _admitting(host: bodies.HostBody) -> Text:
    """Return whether a host takes new VMs: what was ordered, and its own conditions."""
    made = _state(host.admin)
    for taint in host.taints:
        if taint.get("key", "").startswith("roost/"):
            made = Text.assemble(made, ", ", (taint["key"].removeprefix("roost/"), "yellow"))
    return made


def _share(found: bodies.HostAmounts, write: Callable[[int], str]) -> str:
    return f"{write(found.committed)} / {write(found.capacity)}"


def host(body: bodies.HostBody) -> RenderableType:
    """Return one host with all that is known of it."""
    taints = [
        f"{each.get('key')}={each.get('value', '')}:{each.get('effect')}" for each in body.taints
    ]
    pairs: list[tuple[str, RenderableType]] = [
        ("name", Text(body.name)),
        ("number", str(body.number)),
        ("health", _state(body.health)),
        ("admin", _admitting(body)),
        ("driver", _virtual(body.virtual, body.driver)),
        (
            "where",
            Text(f"zone {body.zone or '-'}, rack {body.rack or '-'}, site {body.site or '-'}"),
        ),
        ("architecture", Text(body.architecture)),
        ("agent", Text("connected" if body.connected else "not connected here")),
        ("fence guard", Text("running" if body.guard else "none")),
    ]
    if body.unusable:
        pairs.append(("unusable", Text(body.unusable, style="bold red")))
    pairs += [("fenced", Text(body.fenced, style="bold red"))] if body.fenced else []
    pairs += [("labels", Text(_pairs(body.labels)))] if body.labels else []
    pairs += [("taints", Text(", ".join(taints)))] if body.taints else []
    pairs += [("closed", Text(body.closed, style="yellow"))] if body.closed else []
    pairs += [("capabilities", Text(", ".join(body.capabilities)))] if body.capabilities else []
    most = "" if body.max_vms is None else f" of at most {body.max_vms}"
    pairs.append(("VMs", f"{body.vms}{most}"))
    made = tables.table(
        "resource", "committed", "capacity", "used", "", right=("committed", "capacity", "used")
    )
    for name, found in (("cpu", body.cpu_milli), ("memory", body.memory_bytes),
                        ("disk", body.disk_bytes), *body.extended.items()):  # fmt: skip
        made.add_row(
            Text(name),
            sentences.amount(name, found.committed),
            sentences.amount(name, found.capacity),
            "unknown" if found.used is None else sentences.amount(name, found.used),
            tables.bar(found.committed / found.capacity) if found.capacity else "",
        )
    parts: list[RenderableType] = [lines(pairs), Text(""), made]
    if body.held:
        named = ", ".join(str(each.get("name") or each.get("id") or each) for each in body.held)
        parts.append(Text(f"held (it runs them, nobody asked it to): {named}", style="yellow"))
    return Group(*parts)


def drain(body: bodies.DrainBody) -> RenderableType:
    """Return how far a drain has come, and what blocks it."""
    left = f"{body.left} VM{'' if body.left == 1 else 's'} left"
    names = body.under_way or ([body.moving] if body.moving else [])
    moving = f", moving {' and '.join(names)}" if names else ""
    parts: list[RenderableType] = [
        Text.assemble((body.host, "bold"), " is ", _state(body.state), f": {left}{moving}")
    ]
    for each in body.blocked:
        parts.append(
            Text(f"{each.get('vm', each.get('name', '?'))} fits on no other host", style="red")
        )
        if isinstance(rejection := each.get("rejection"), dict):
            parts += tables.why_not(rejection, Live())
    return Group(*parts)


def projects(listed: Sequence[bodies.ProjectBody]) -> RenderableType:
    """Return projects with what they use of their quotas."""
    numbers = ("VMs", "cpu", "memory", "disk")
    made = tables.table("project", *numbers, right=numbers)
    for each in listed:
        made.add_row(
            Text(each.name, style="bold"),
            _limit(each.vms, str),
            _limit(each.cpu_milli, format_cpu),
            _limit(each.memory_bytes, format_bytes),
            _limit(each.disk_bytes, format_bytes),
        )
    return Group(made, Text("amounts: in use / quota; - is no limit", style="dim"))


def _limit(found: bodies.LimitBody, write: Callable[[int], str]) -> str:
    return f"{write(found.used)} / {'-' if found.quota is None else write(found.quota)}"


def tokens(listed: Sequence[bodies.TokenBody]) -> RenderableType:
    """Return tokens, without their secrets."""
    made = tables.table("id", "name", "role", "project", "created", "expires")
    for each in listed:
        made.add_row(
            Text(each.id, style="bold"),
            Text(each.name),
            Text(each.role),
            Text(each.project or "-"),
            Text(each.created_at),
            Text(each.expires_at or "never"),
        )
    return made


def event(body: bodies.EventBody) -> Text:
    """Return one event as one line; the rows it changed are for -o json."""
    flat = [f"{key}={value}" for key, value in body.changes.items() if _is_word(value)]
    said = [name] if (name := _name_of(body)) else []
    said += flat
    said += [body.note] if body.note else []
    return Text.assemble(
        (f"{body.seq:>7}  {body.at}  ", "dim"), (f"{body.kind:<18} ", "bold"),
        (f"{body.subject}  ", "cyan"), "  ".join(said), (f"  by {body.actor}", "dim"),
    )  # fmt: skip


def _is_word(value: object) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) <= 60


def _name_of(body: bodies.EventBody) -> str:
    """Return the name of the VM that an event is about, if the event has its row."""
    kind, _, key = body.subject.partition("/")
    rows = body.changes.get("vms")
    row = rows.get(key) if kind == "vm" and isinstance(rows, dict) else None
    return str(row.get("name", "")) if isinstance(row, dict) else ""
