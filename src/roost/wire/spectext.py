"""The durable VM spec as the JSON text that a ledger keeps (`vm_specs`), written and read back.

    VMSpec --spec_text--> vm_specs.spec --read_spec--> VMSpec

Processes of two releases may share a ledger, so text is read leniently: a field that this release
does not know, at any depth, is kept in `VMSpec.extra` and written again. A known field of the wrong
type, or a word that is not known there, makes that one VM's spec unreadable and says which. Equal
texts are read once and share one object.
"""

from functools import cache, lru_cache
from typing import Any, Literal

import msgspec
from msgspec import NODEFAULT, Struct

from roost.base.errors import InvalidRequest, InvariantBroken
from roost.model.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    LabelTerm,
    NearRule,
    Preference,
    Toleration,
)
from roost.model.groups import GroupSpec
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.model.vm import AffinityRule, Boot, Image, Nic, VMSpec
from roost.wire.translate import group_rule, scope_named

#: Distinct texts whose specs are kept at hand; more are read again, which is only slower.
MOST_KEPT = 16_384

_Rule = Literal["affinity", "anti-affinity", "spread"]
_Scope = Literal["host", "rack", "zone"]


class SpecUnreadable(InvariantBroken):
    """The stored spec of one VM has a known field with a value that this release cannot take."""

    code = "spec_unreadable"


# The stored form. Fields are only ever added; one that is at its default is not written.


class _Text(Struct, omit_defaults=True):
    """Base of the structs that make up the stored form of a spec."""


class _Devices(_Text):
    count: int = 1
    share_milli: int = 1000
    models: list[str] = []
    memory_bytes: int = 0


class _Demand(_Text):
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int = 0
    devices: _Devices | None = None
    extended: dict[str, int] = {}
    numa: NumaMode = NumaMode.ANY


class _LabelTerm(_Text):
    key: str
    operator: str = "exists"
    values: list[str] = []


class _Preference(_LabelTerm):
    weight: int = 50


class _Toleration(_Text):
    key: str = ""
    value: str | None = None


class _Near(_Text):
    of: str
    name: str
    group: bool = False
    most_us: int | None = None
    least_kbit: int | None = None


class _Constraints(_Text):
    labels: list[_LabelTerm] = []
    tolerations: list[_Toleration] = []
    architecture: str | None = None
    driver: str | None = None
    capabilities: list[str] = []
    zones: list[str] = []
    racks: list[str] = []
    sites: list[str] = []
    hosts: list[str] = []
    not_hosts: list[str] = []
    preferences: list[_Preference] = []
    near: list[_Near] = []


class _Group(_Text):
    name: str
    rule: _Rule
    scope: _Scope = "host"
    hard: bool = True
    max_skew: int = 1
    weight: int = 50


class _Affinity(_Text):
    selector: dict[str, str]
    rule: _Rule
    scope: _Scope = "host"
    hard: bool = True
    max_skew: int = 1
    weight: int = 50


class _Image(_Text):
    digest: str
    url: str = ""


class _Boot(_Text):
    image: _Image | None = None
    kernel: _Image | None = None
    initrd: _Image | None = None
    cmdline: str = ""
    user_data: str = ""


class _Nic(_Text):
    mode: str = "user"
    bridge: str = ""
    mac: str = ""
    forward: list[str] = []


class _Spec(_Text):
    demand: _Demand
    constraints: _Constraints | None = None
    groups: list[str | _Group] = []
    affinity: list[_Affinity] = []
    strategy: str | None = None
    priority: int = 0
    priority_class: str = ""
    on_no_fit: str = "fail"
    restart: str = "here"
    start: bool = True
    boot: _Boot | None = None
    nics: list[_Nic] = []
    policy: str = ""
    policy_version: int = 0
    until_ms: int | None = None
    reservation: str = ""
    created_by: str = ""
    flavor: str = ""


_decode = msgspec.json.Decoder(_Spec).decode
_encode = msgspec.json.Encoder().encode


# Text


def spec_text(spec: VMSpec) -> str:
    """Write a spec as the JSON that the ledger keeps, with the unknown fields it came with."""
    plain = _plain_form(_spec_form(spec))
    if spec.extra:
        for path, value in msgspec.json.decode(spec.extra):
            _put_back(plain, path, value)
    return _encode(plain).decode()


@cache
def _defaults(form: type[_Text]) -> tuple[tuple[str, Any], ...]:
    fields = msgspec.structs.fields(form)
    return tuple((field.name, _default(field)) for field in fields)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def _plain_form(form: Any) -> Any:
    """Return a form as plain values without what is at its default.

    msgspec leaves out what *is* the default object; a text must not depend on where a value is
    from, so that equal specs have equal texts.
    """
    if isinstance(form, _Text):
        found = {}
        for name, default in _defaults(type(form)):
            value = getattr(form, name)
            if value != default:
                found[name] = _plain_form(value)
        return found
    return [_plain_form(part) for part in form] if isinstance(form, list) else form


@lru_cache(maxsize=MOST_KEPT)
def read_spec(text: str, version: int = 1) -> VMSpec:
    """Read a stored spec; `SpecUnreadable` names the field that cannot be taken."""
    try:
        form = _decode(text)
        spec = _spec_of_form(form, version)
    except (msgspec.MsgspecError, InvalidRequest) as error:
        said = error.message if isinstance(error, InvalidRequest) else str(error)
        raise SpecUnreadable(f"a VM's stored spec cannot be read: {said}") from error
    if _encode(form).decode() == text:
        return spec  # written by this release: nothing in it is unknown
    found: list[tuple[list[str | int], Any]] = []
    _find_unknown(msgspec.json.decode(text), form, [], found)
    if not found:
        return spec
    extra = _encode(found).decode()
    return _with_extra(spec, extra)


def _with_extra(spec: VMSpec, extra: str) -> VMSpec:
    fields = {name: getattr(spec, name) for name in VMSpec.__dataclass_fields__}
    return VMSpec(**{**fields, "extra": extra})


def _find_unknown(
    plain: Any, form: Any, path: list[str | int], found: list[tuple[list[str | int], Any]]
) -> None:
    """Collect the fields of `plain` that the form has no place for, each with its path."""
    if isinstance(form, _Text) and isinstance(plain, dict):
        known = form.__struct_fields__
        for name, value in plain.items():
            if name in known:
                _find_unknown(value, getattr(form, name), [*path, name], found)
            else:
                found.append(([*path, name], value))
    elif isinstance(form, list) and isinstance(plain, list):
        for at, (value, part) in enumerate(zip(plain, form, strict=True)):
            _find_unknown(value, part, [*path, at], found)


def _put_back(plain: Any, path: list[str | int], value: Any) -> None:
    """Set a field that was unknown when it was read, where it stood."""
    for step in path[:-1]:
        plain = plain.setdefault(step, {}) if isinstance(step, str) else plain[step]
    plain[path[-1]] = value


# Between the stored form and the model


def _spec_of_form(form: _Spec, version: int) -> VMSpec:
    demand = form.demand
    devices = demand.devices
    return VMSpec(
        demand=Demand(
            demand.cpu_milli,
            demand.memory_bytes,
            demand.disk_bytes,
            tuple(sorted(demand.extended.items())),
            None
            if devices is None
            else DeviceDemand(
                devices.count, devices.share_milli, tuple(devices.models), devices.memory_bytes
            ),
            demand.numa,
        ),
        constraints=_constraints_of_form(form.constraints),
        groups=tuple(g if isinstance(g, str) else _group_of_form(g) for g in form.groups),
        affinity=tuple(
            AffinityRule(
                tuple(sorted(a.selector.items())),
                group_rule(a.rule),
                scope_named(a.scope),
                a.hard,
                a.max_skew,
                a.weight,
            )
            for a in form.affinity
        ),
        strategy=form.strategy,
        priority=form.priority,
        priority_class=form.priority_class,
        on_no_fit=form.on_no_fit,
        restart=form.restart,
        start=form.start,
        boot=_boot(form.boot),
        nics=tuple(Nic(n.mode, n.bridge, n.mac, tuple(n.forward)) for n in form.nics),
        policy=form.policy,
        policy_version=form.policy_version,
        until_ms=form.until_ms,
        reservation=form.reservation,
        created_by=form.created_by,
        flavor=form.flavor,
        version=version,
    )


def _constraints_of_form(form: _Constraints | None) -> Constraints:
    if form is None:
        return NO_CONSTRAINTS
    found = Constraints(
        labels=tuple(LabelTerm(t.key, t.operator, tuple(t.values)) for t in form.labels),  # type: ignore[arg-type]  # a word becomes its operator there
        tolerations=tuple(Toleration(t.key, t.value) for t in form.tolerations),
        architecture=form.architecture,
        driver=form.driver,
        capabilities=tuple(form.capabilities),
        zones=tuple(form.zones),
        racks=tuple(form.racks),
        sites=tuple(form.sites),
        pinned=tuple(form.hosts),
        excluded=tuple(form.not_hosts),
        preferences=tuple(
            Preference(LabelTerm(p.key, p.operator, tuple(p.values)), p.weight)  # type: ignore[arg-type]
            for p in form.preferences
        ),
        near=tuple(NearRule(n.of, n.name, n.group, n.most_us, n.least_kbit) for n in form.near),
    )
    return NO_CONSTRAINTS if found == NO_CONSTRAINTS else found


def _group_of_form(form: _Group) -> GroupSpec:
    return GroupSpec(
        form.name,
        group_rule(form.rule),
        scope_named(form.scope),
        form.hard,
        form.max_skew,
        form.weight,
    )


def _boot(form: _Boot | None) -> Boot | None:
    if form is None:
        return None
    images = _image(form.image), _image(form.kernel), _image(form.initrd)
    return Boot(*images, form.cmdline, form.user_data)


def _image(form: _Image | None) -> Image | None:
    return None if form is None else Image(form.digest, form.url)


def _spec_form(spec: VMSpec) -> _Spec:
    demand, devices = spec.demand, spec.demand.devices
    return _Spec(
        demand=_Demand(
            demand.cpu_milli,
            demand.memory_bytes,
            demand.disk_bytes,
            None
            if devices is None
            else _Devices(devices.count, devices.milli, list(devices.models), devices.memory_bytes),
            dict(demand.extended),
            demand.numa,
        ),
        constraints=None
        if spec.constraints is NO_CONSTRAINTS
        else _constraints_form(spec.constraints),
        groups=[g if isinstance(g, str) else _group_form(g) for g in spec.groups],
        affinity=[_affinity_form(rule) for rule in spec.affinity],
        strategy=spec.strategy,
        priority=spec.priority,
        priority_class=spec.priority_class,
        on_no_fit=spec.on_no_fit,
        restart=spec.restart,
        start=spec.start,
        boot=None
        if (boot := spec.boot) is None
        else _Boot(
            _image_form(boot.image),
            _image_form(boot.kernel),
            _image_form(boot.initrd),
            boot.cmdline,
            boot.user_data,
        ),
        nics=[_Nic(n.mode, n.bridge, n.mac, list(n.forward)) for n in spec.nics],
        policy=spec.policy,
        policy_version=spec.policy_version,
        until_ms=spec.until_ms,
        reservation=spec.reservation,
        created_by=spec.created_by,
        flavor=spec.flavor,
    )


def _constraints_form(of: Constraints) -> _Constraints:
    return _Constraints(
        [_LabelTerm(t.key, t.operator.value, list(t.values)) for t in of.labels],
        [_Toleration(t.key, t.value) for t in of.tolerations],
        of.architecture,
        of.driver,
        list(of.capabilities),
        list(of.zones),
        list(of.racks),
        list(of.sites),
        list(of.pinned),
        list(of.excluded),
        [
            _Preference(p.term.key, p.term.operator.value, list(p.term.values), p.weight)
            for p in of.preferences
        ],
        [_Near(n.of, n.name, n.group, n.most_us, n.least_kbit) for n in of.near],
    )


def plain_constraints(of: Constraints) -> dict[str, Any]:
    """Return constraints as the plain values that their text is made of."""
    plain: dict[str, Any] = _plain_form(_constraints_form(of))
    return plain


def _group_form(group: GroupSpec) -> _Group:
    return _Group(
        group.name,
        group.rule.label,  # type: ignore[arg-type]  # the labels are these words
        group.scope.label,  # type: ignore[arg-type]
        group.hard,
        group.max_skew,
        group.weight,
    )


def _affinity_form(rule: AffinityRule) -> _Affinity:
    return _Affinity(
        dict(rule.selector),
        rule.rule.label,  # type: ignore[arg-type]  # the labels are these words
        rule.scope.label,  # type: ignore[arg-type]
        rule.hard,
        rule.max_skew,
        rule.weight,
    )


def _image_form(image: Image | None) -> _Image | None:
    return None if image is None else _Image(image.digest, image.url)
