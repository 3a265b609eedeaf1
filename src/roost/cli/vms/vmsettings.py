"""`roost vm set` and `roost vm resize`: change VMs that exist."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import Conflict, InvalidRequest, NoFit
from roost.cli.show.screen import note
from roost.cli.words.completing import (
    complete_flavors,
    complete_groups,
    complete_hosts,
    complete_policies,
    complete_racks,
    complete_zones,
)
from roost.cli.words.each import do_each
from roost.cli.words.nouns import ProjectOption, SomeVMsArgument, TimeoutOption
from roost.cli.words.selecting import SelectorOption, named_vms
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.bodies import ResizeVM, SetVM, VMBody
    from roost.wire.policies import VMPolicyBody


class Restart(StrEnum):
    """Where a VM may be started again when its host dies."""

    HERE = "here"
    ELSEWHERE = "elsewhere"


@asks_server
def set_(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    restart: Annotated[
        Restart | None, typer.Option(help="Where it may start again after the loss of its host.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Another name.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE|KEY-", help="A label to set, or with a dash to take off."),
    ] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Another priority.")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP|GROUP-",
            help="A group to join, or leave.",
            autocompletion=complete_groups,
        ),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="One of these hosts, from its next placement on.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    unpin: Annotated[bool, typer.Option("--unpin", help="Any host, from then on.")] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="None of these hosts, from its next placement on.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    no_exclude: Annotated[
        bool, typer.Option("--no-exclude", help="No host is excluded any more.")
    ] = False,
    zone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ZONE",
            help="One of these zones, from its next placement on.",
            autocompletion=complete_zones,
        ),
    ] = None,
    no_zone: Annotated[bool, typer.Option("--no-zone", help="Any zone, from then on.")] = False,
    rack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RACK",
            help="One of these racks, from its next placement on.",
            autocompletion=complete_racks,
        ),
    ] = None,
    no_rack: Annotated[bool, typer.Option("--no-rack", help="Any rack, from then on.")] = False,
    host_label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TERM",
            help="The conditions on a host's labels ('tier in gold,silver'), from its next "
            "placement on.",
        ),
    ] = None,
    no_host_label: Annotated[
        bool, typer.Option("--no-host-label", help="No condition on labels any more.")
    ] = False,
    tolerate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TAINT",
            help="The taints that do no harm (KEY, KEY=VALUE, *), from its next placement on.",
        ),
    ] = None,
    no_tolerate: Annotated[
        bool, typer.Option("--no-tolerate", help="No taint is tolerated any more.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            help="The policy it is to be under from now on.", autocompletion=complete_policies
        ),
    ] = None,
    no_policy: Annotated[
        bool, typer.Option("--no-policy", help="It is to be under no policy from now on.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Change VMs: name, labels, priority, groups, where they may be, restart, policy.

    A VM stays where it is: hosts, zones and the like, and a policy, count from its next placement
    on, and hard rules that its place breaks are told. Of hosts, zones, racks, conditions and taints
    those that are given replace all that were there. `--restart elsewhere` holds once a VM's host
    has said that it stops the VM when its lease ends; until then only a fence command that
    succeeded, or your word (`roost host confirm-dead`), brings it elsewhere. `here` holds at once.
    """
    chosen = named_vms(session, vm, selector, project)
    if (pin and unpin) or (exclude and no_exclude):
        raise InvalidRequest("hosts are named or lifted, not both")
    if name is not None and len(chosen) > 1:
        raise InvalidRequest(f"{len(chosen)} VMs cannot all be named {name!r}")
    hosts = [] if unpin else pin
    kept_off = [] if no_exclude else exclude
    where = _where(
        {"zone": zone, "rack": rack, "label": host_label, "tolerate": tolerate},
        {"zone": no_zone, "rack": no_rack, "label": no_host_label, "tolerate": no_tolerate},
    )
    plain = bool(where) or (restart, name, label, priority, hosts, kept_off) != (None,) * 6
    if policy is not None or no_policy:
        if plain or group or (policy is not None and no_policy):
            raise InvalidRequest("--policy, --no-policy and the rest are set one at a time")
        _set_policy(session, chosen, policy, project)
        return
    if not plain and not group:
        raise InvalidRequest(
            "nothing to set", hint="Maybe --label tier=gold, --restart elsewhere or --group web."
        )

    def one(ref: str) -> "VMBody":
        body: VMBody | None = None
        if plain:
            now = session.client.get_vm(ref, project=project) if label else None
            wanted = _wanted(now, restart, name, label, priority, hosts, kept_off, where)
            body = session.client.set_vm(ref, wanted, project=project)
        for text in group or []:
            named, members = text.removesuffix("-"), [body.id if body is not None else ref]
            client = session.client
            act = client.remove_from_group if text.endswith("-") else client.add_to_group
            act(named, members, project=project)
        return session.client.get_vm(body.id if body else ref, project=project) if group else body  # type: ignore[return-value]  # one of both was asked for

    do_each(session, "vm", chosen, one, _said)


def _where(given: dict[str, list[str] | None], lifted: dict[str, bool]) -> dict[str, Any]:
    """Return the fields of a change that say where VMs may be, of those options that are given."""
    from roost.cli.words.asking import constraints_said
    from roost.cli.words.binding import BINDING

    if any(given[word] and lifted[word] for word in given):
        raise InvalidRequest("zones and the like are named or lifted, not both")
    if not any(given.values()) and not any(lifted.values()):
        return {}
    said = constraints_said([(word, text) for word in given for text in given[word] or []])
    names = zip(given, ("zones", "racks", "labels", "tolerations"), strict=True)
    return {
        BINDING[name]: getattr(said, name) for word, name in names if given[word] or lifted[word]
    }


def _wanted(
    now: "VMBody | None",
    restart: Restart | None,
    name: str | None,
    label: list[str] | None,
    priority: int | None,
    hosts: list[str] | None,
    kept_off: list[str] | None,
    where: dict[str, Any],
) -> "SetVM":
    from roost.cli.words.asking import read_labels
    from roost.wire.bodies import SetVM

    fields: dict[str, Any] = {"name": name, "priority": priority, "hosts": hosts} | where
    fields["not_hosts"] = kept_off
    fields["restart"] = None if restart is None else restart.value
    if now is not None and label:
        gone = {text[:-1] for text in label if text.endswith("-") and "=" not in text}
        added = read_labels([t for t in label if t[:-1] not in gone or "=" in t], "--label")
        if missing := gone - now.labels.keys():
            raise InvalidRequest(f"VM {now.name!r} has no label {min(missing)!r}")
        left = {key: value for key, value in now.labels.items() if key not in gone}
        fields["labels"] = left | added
    return SetVM(**{field: value for field, value in fields.items() if value is not None})


def _said(body: "VMBody") -> str:
    from roost.cli.words.binding import binding, in_words

    waits = "" if body.restart_acknowledged else ", once its host has said that it stops it"
    parts = [f"restarts {body.restart}{waits}"]
    if body.priority:
        parts.append(f"priority {body.priority}")
    if body.labels:
        parts.append("labels " + ", ".join(f"{key}={value}" for key, value in body.labels.items()))
    if body.groups:
        parts.append(f"groups {', '.join(body.groups)}")
    pinned, kept_off = body.constraints.get("hosts", []), body.constraints.get("not_hosts", [])
    if pinned:
        parts.append(f"pinned to {', '.join(pinned)}")
    if kept_off:
        parts.append(f"not on {', '.join(kept_off)}")
    if bound := in_words(binding(body.constraints)):
        parts.append(bound)
    wrong = body.host is not None and (
        (pinned and body.host not in pinned) or body.host in kept_off
    )
    stays = f"; it stays on {body.host} until it moves: roost vm migrate {body.name}"
    return f"{body.name}: {'; '.join(parts)}{stays if wrong else ''}"


def _set_policy(session: Session, vms: list[str], policy: str | None, project: str | None) -> None:
    """Put VMs under another policy, or none, and say what their places break."""
    from roost.wire.policies import ApplyPolicy

    applied = ApplyPolicy(policy=policy)

    def one(name: str) -> "VMPolicyBody":
        return session.client.set_vm_policy(name, applied, project=project)

    do_each(session, "vm", vms, one, _under)


def _under(body: "VMPolicyBody") -> str:
    under = f"policy {body.policy}" if body.policy is not None else "no policy"
    broken = (
        f"\n  on {body.host} it breaks {each.rule}: {each.part}; it stays there"
        for each in body.violations
    )
    return f"{body.name} is {'now' if body.changed else 'already'} under {under}{''.join(broken)}"


@asks_server
def resize(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    cpu: Annotated[str | None, typer.Option(metavar="CORES", help="Cores or millicores.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory (8GiB).")] = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="Disk (40GiB).")] = None,
    flavor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The amounts of this flavor.", autocompletion=complete_flavors
        ),
    ] = None,
    move: Annotated[
        bool,
        typer.Option("--move", help="Move it first, if its host has no room and another one has."),
    ] = False,
    timeout: TimeoutOption = 600.0,
    project: ProjectOption = None,
) -> None:
    """Give VMs other amounts; what is left out stays."""
    from roost.cli.show import listings

    amounts = _amounts(session, cpu, memory, disk, flavor)
    chosen = named_vms(session, vm, selector, project)

    def one(name: str) -> "VMBody":
        try:
            return session.client.resize_vm(name, amounts, project=project)
        except NoFit:
            if not move:
                raise
        _move_away(session, name, amounts, timeout, project)
        return session.client.resize_vm(name, amounts, project=project)

    def said(found: "VMBody") -> str:
        return f"{found.name} has {listings.amounts(found.demand)} on {found.host or 'no host yet'}"

    do_each(session, "vm", chosen, one, said)


def _amounts(
    session: Session, cpu: str | None, memory: str | None, disk: str | None, flavor: str | None
) -> "ResizeVM":
    from msgspec import UNSET

    from roost.base.units import exact_cpu, parse_bytes, parse_cpu
    from roost.wire.bodies import ResizeVM

    if flavor is not None:
        if (cpu, memory, disk) != (None, None, None):
            raise InvalidRequest(f"--flavor {flavor!r} says all amounts")
        wanted = session.client.get_flavor(flavor)
        if wanted.gpu or wanted.demand.extended:
            raise InvalidRequest(
                f"flavor {flavor!r} has devices or extended resources, which no VM gets later"
            )
        milli = exact_cpu(wanted.cpu_milli)
        return ResizeVM(cpu=milli, memory=wanted.memory_bytes, disk=wanted.disk_bytes)
    if cpu is memory is disk is None:
        raise InvalidRequest("resize to what?", hint="Maybe --cpu 4 or --memory 8GiB.")
    return ResizeVM(
        cpu=UNSET if cpu is None else exact_cpu(parse_cpu(cpu)),
        memory=UNSET if memory is None else parse_bytes(memory, "memory"),
        disk=UNSET if disk is None else parse_bytes(disk, "disk"),
    )


def _move_away(
    session: Session, ref: str, amounts: "ResizeVM", timeout: float, project: str | None
) -> None:
    """Move a VM to the host that takes it at its new size, and wait until it is there.

    The new size is claimed only when it has arrived: another VM may have taken the room by then,
    and the resize is refused where the VM is now.
    """
    import msgspec
    from msgspec import UNSET

    from roost.base.units import exact_cpu
    from roost.cli.watch.waiting import wait_for_vm
    from roost.wire.bodies import ConstraintsBody, DemandBody, DryRun, PlacementBody

    now = session.client.get_vm(ref, project=project)
    demand = DemandBody(
        cpu=exact_cpu(now.demand.cpu_milli) if amounts.cpu is UNSET else amounts.cpu,
        memory=now.demand.memory_bytes if amounts.memory is UNSET else amounts.memory,
        disk=now.demand.disk_bytes if amounts.disk is UNSET else amounts.disk,
        gpu=now.demand.gpu,
        extended=now.demand.extended,
    )
    constraints = msgspec.convert(now.constraints, ConstraintsBody)
    if now.host is not None:
        constraints.not_hosts = [*constraints.not_hosts, now.host]
    asked = DryRun(
        name=now.name,
        project=now.project,
        demand=demand,
        constraints=constraints,
        groups=list(now.groups),
        labels=now.labels,
        priority=now.priority,
        policy=now.policy,
    )
    answer = session.client.dry_run(asked)
    if not isinstance(answer, PlacementBody):
        raise Conflict(
            f"no other host takes {now.name!r} at its new size: {answer.message}", vm=now.id
        )
    note(f"{now.name} moves from {now.host} to {answer.host}, which has room for its new size")
    moving = session.client.migrate_vm(now.id, host=answer.host)
    last = wait_for_vm(session, moving, now.desired, timeout)
    if last.host != answer.host:
        raise Conflict(f"the move of {now.name!r} to {answer.host!r} has failed", vm=now.id)
