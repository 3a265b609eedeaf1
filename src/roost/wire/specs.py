"""A create's body as a durable VM spec, and a spec as answers and hosts are shown it.

    CreateVM --spec_of--> NewSpec: a VMSpec and its text (`wire/spectext.py`)

Nothing here sees user data but as a digest, save what hands it on to the VM's own host.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from roost.base.timestamps import read_timestamp
from roost.model.constraints import NO_CONSTRAINTS, NearRule
from roost.model.states import Restart
from roost.model.vm import AffinityRule, Boot, Image, NewSpec, Nic, VMSpec
from roost.wire.agentlink import BootInfo, ImageInfo, NicInfo
from roost.wire.bodies import (
    AffinityBody,
    BootBody,
    CreateVM,
    DemandBody,
    ImageBody,
    NicBody,
)
from roost.wire.spectext import MOST_KEPT, plain_constraints, spec_text
from roost.wire.translate import (
    constraints_of,
    demand_of,
    demand_said,
    group_of,
    group_rule,
    scope_named,
)

# Of a body


def user_data_digest(data: str) -> str:
    """Return what a spec holds of user data."""
    return f"sha256:{sha256(data.encode()).hexdigest()}"


class Under(NamedTuple):
    """The policy that a VM is created under: its name, its version, and where its VMs restart."""

    policy: str = ""
    version: int = 0
    restart: Restart = "here"


NO_POLICY = Under()


def spec_of(body: CreateVM, under: Under = NO_POLICY, by: str = "") -> NewSpec:
    """Translate the body of somebody's create; what is wrong with an amount or a term is said."""
    demand, restart = demand_said(body), body.restart or under.restart
    if not (
        body.constraints or body.groups or body.affinity or body.boot or body.nics
        or demand.gpu or demand.extended or demand.numa != "any"
        or body.until is not None or body.reservation is not None
    ):  # fmt: skip
        return _plain(
            demand.cpu,
            demand.memory,
            demand.disk,
            body.strategy,
            body.priority,
            body.priority_class or "",
            body.on_no_fit,
            restart,
            body.start,
            under.policy,
            under.version,
            by,
            body.flavor or "",
        )
    spec = VMSpec(
        demand=demand_of(demand),
        constraints=constraints_of(body.constraints),
        groups=tuple(g if isinstance(g, str) else group_of(g, g.name) for g in body.groups),
        affinity=tuple(map(_affinity, body.affinity)),
        strategy=body.strategy,
        priority=body.priority,
        priority_class=body.priority_class or "",
        on_no_fit=body.on_no_fit,
        restart=restart,
        start=body.start,
        boot=_boot(body.boot),
        nics=tuple(Nic(n.mode, n.bridge, n.mac, tuple(n.forward)) for n in body.nics),
        policy=under.policy,
        policy_version=under.version,
        until_ms=None if body.until is None else read_timestamp(body.until, "until"),
        reservation=body.reservation or "",
        created_by=by,
        flavor=body.flavor or "",
    )
    data = body.boot.user_data if body.boot is not None else ""
    return NewSpec(spec, spec_text(spec), data)


@lru_cache(maxsize=MOST_KEPT)  # fleets are made of a few sizes
def _plain(
    cpu: int | float | str,
    memory: int | str,
    disk: int | str,
    strategy: str | None,
    priority: int,
    priority_class: str,
    on_no_fit: str,
    restart: str,
    start: bool,
    policy: str,
    policy_version: int,
    by: str,
    flavor: str,
) -> NewSpec:
    demand = demand_of(DemandBody(cpu=cpu, memory=memory, disk=disk))
    spec = VMSpec(
        demand,
        strategy=strategy,
        priority=priority,
        priority_class=priority_class,
        on_no_fit=on_no_fit,
        restart=restart,
        start=start,
        policy=policy,
        policy_version=policy_version,
        created_by=by,
        flavor=flavor,
    )
    return NewSpec(spec, spec_text(spec))


def _affinity(body: AffinityBody) -> AffinityRule:
    return AffinityRule(
        tuple(sorted(body.selector.items())),
        group_rule(body.rule),
        scope_named(body.scope),
        body.hard,
        body.max_skew,
        body.weight,
    )


def _boot(body: BootBody | None) -> Boot | None:
    if body is None:
        return None
    images = _image(body.image), _image(body.kernel), _image(body.initrd)
    data = user_data_digest(body.user_data) if body.user_data else ""
    return Boot(*images, body.cmdline, data)


def _image(body: ImageBody | None) -> Image | None:
    return None if body is None else Image(body.digest, body.url)


def asked_image(body: CreateVM) -> str:
    """Return the digest of the image that a VM is to boot, or of its kernel; empty: neither."""
    boot = body.boot
    image = None if boot is None else boot.image or boot.kernel
    return "" if image is None else image.digest


# What answers show


def constraints_json(spec: VMSpec) -> dict[str, Any]:
    """Return a spec's constraints as answers show them; nothing when there are none."""
    if spec.constraints is NO_CONSTRAINTS:
        return {}
    found = plain_constraints(spec.constraints)
    if spec.constraints.near:
        found["near"] = [_near_json(each) for each in spec.constraints.near]
    return found


def _near_json(rule: NearRule) -> dict[str, Any]:
    """Return how near something must be as it was asked for."""
    shown: dict[str, Any] = {"group" if rule.group else "vm": rule.name}
    if rule.most_us is not None:
        shown["latency"] = rule.most_us / 1000
    if rule.least_kbit is not None:
        shown["bandwidth"] = rule.least_kbit / 1000
    return shown


def boot_body(boot: Boot | None) -> BootBody | None:
    """Return what a VM boots as answers show it; user data is shown to nobody."""
    if boot is None:
        return None
    image, kernel, initrd = (
        None if part is None else ImageBody(digest=part.digest, url=part.url)
        for part in (boot.image, boot.kernel, boot.initrd)
    )
    return BootBody(image=image, kernel=kernel, initrd=initrd, cmdline=boot.cmdline)


def nic_body(nic: Nic) -> NicBody:
    """Return a network card as answers show it."""
    return NicBody(mode=nic.mode, bridge=nic.bridge, mac=nic.mac, forward=list(nic.forward))  # type: ignore[arg-type]  # the word came from a body


# What a host is told


def boot_info(boot: Boot | None, user_data: str) -> BootInfo | None:
    """Return what a host is told about booting a VM."""
    if boot is None:
        return None
    image, kernel, initrd = (
        None if part is None else ImageInfo(part.digest, part.url)
        for part in (boot.image, boot.kernel, boot.initrd)
    )
    return BootInfo(image, kernel, initrd, boot.cmdline, user_data)


def nic_info(nic: Nic) -> NicInfo:
    """Return what a host is told about one network card."""
    return NicInfo(nic.mode, nic.bridge, nic.mac, list(nic.forward))  # type: ignore[arg-type]  # as above
