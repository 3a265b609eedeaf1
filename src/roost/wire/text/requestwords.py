"""The words that describe what a VM asks for, read and written.

    cpu= memory= disk= x.NAME=                       amounts
    gpu=1 gpu-share=250 gpu-model=A100,H100 gpu-memory=40GiB   devices, thousandths of each
    numa=any|one|split
    label="tier in gold,silver"  label=tier=gold     operators: in not-in exists absent gt lt
    tolerate=dedicated=db,burst,*                    taints that do no harm; * tolerates all
    zone=a,b rack= site= arch= driver= capability=   where and on what
    pin=h1,h2 exclude=h3                             one of these hosts, none of these
    prefer="ssd exists:50"                           a wish with its weight
    group=web,db                                     and, in a request, group="web anti-affinity"
A request also knows strategy= seed= priority= project=.
"""

import re
from collections.abc import Iterable

from roost.base.errors import InvalidRequest
from roost.base.units import exact_bytes, parse_bytes, parse_count
from roost.model.constraints import (
    Constraints,
    LabelOperator,
    LabelTerm,
    NearRule,
    Preference,
    Toleration,
)
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.model.resources import (
    BASE_RESOURCES,
    WHOLE_DEVICE,
    Demand,
    DeviceDemand,
    NumaMode,
)
from roost.wire.text.hostwords import (
    EXTENDED,
    extended_names,
    read_amount,
    resource_word,
    write_amount,
)
from roost.wire.text.settings import Settings, Vocabulary
from roost.wire.text.words import Piece, choose, cut, escape, literal

_DEMAND = (*BASE_RESOURCES, "gpu", "gpu-share", "gpu-memory", "numa")
_CONSTRAINT_LISTS = (
    "label", "tolerate", "zone", "rack", "site", "capability", "pin", "exclude", "prefer",
    "near",
)  # fmt: skip

HOLD_WORDS = Vocabulary("a hold", _DEMAND, ("gpu-model",), (EXTENDED,))
VM_WORDS = Vocabulary(
    "a vm",
    (*_DEMAND, "arch", "driver"),
    ("gpu-model", *_CONSTRAINT_LISTS, "group", "devices", "cells"),
    (EXTENDED,),
)
REQUEST_WORDS = Vocabulary(
    "a request",
    (*_DEMAND, "arch", "driver", "strategy", "seed", "priority", "project"),
    ("gpu-model", *_CONSTRAINT_LISTS, "group"),
    (EXTENDED,),
)

_INTEGER = re.compile(r"-?[0-9]{1,20}\Z")
_NEAR = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,3})?)(?P<unit>ms|mbit)\Z")
_GROUP = "group:"
_NUMA = {mode.value: mode for mode in NumaMode}
_OPERATORS = {operator.value: operator for operator in LabelOperator}
_RULES = {rule.label: rule for rule in GroupRule}
_SCOPES = {scope.label: scope for scope in Scope}
_GROUP_WORDS = Vocabulary("a group", ("weight", "max-skew"))


def parse_request(words: Iterable[tuple[str, str]], name: str) -> PlaceRequest:
    """Return the request that (word, value) pairs describe, as command options give them.

    Backslashes work as in a fleet file; spaces and quotes need no protection.
    """
    pieces = (literal(f"{key}={value}") for key, value in words)
    return read_request(Settings.read(literal(name), pieces, REQUEST_WORDS))


def parse_demand(words: Iterable[tuple[str, str]], name: str, what: str) -> Demand:
    """Return the amounts that (word, value) pairs describe, of something with this name."""
    pieces = (literal(f"{key}={value}") for key, value in words)
    return read_demand(Settings.read(literal(name), pieces, REQUEST_WORDS), what)


def read_request(settings: Settings) -> PlaceRequest:
    """Return the request that these words describe; its name is the settings' owner."""
    groups: list[GroupSpec | str] = []
    for value in settings.values("group"):
        if len(value.fields()) > 1:
            groups.append(read_group(value.fields()))
        else:
            groups += [item.text for item in value.items("group")]
    return PlaceRequest(
        name=settings.owner.text,
        demand=read_demand(settings, "vm"),
        constraints=read_constraints(settings),
        groups=tuple(groups),
        strategy=settings.text("strategy", "") or None,
        seed=settings.convert("seed", _integer, None),
        priority=settings.convert("priority", _integer, 0),
        project=settings.text("project", ""),
    )


def _integer(text: str, what: str) -> int:
    # Not parse_count: a seed is no amount, so the largest amount is no bound for it.
    if not _INTEGER.match(text):
        raise InvalidRequest(f"{what} {text!r} is not a whole number", value=text)
    return int(text)


def write_request(request: PlaceRequest) -> str:
    """Write a request as one line, its name first, from which `parse_line` makes it again."""
    words = [escape(request.name), *write_demand(request.demand)]
    words += write_constraints(request.constraints)
    for group in request.groups:
        if isinstance(group, str):
            words.append(f"group={escape(group)}")
        else:
            words.append(f'group="{" ".join(write_group(group))}"')
    words += [f"strategy={escape(request.strategy)}"] if request.strategy else []
    words += [f"seed={request.seed}"] if request.seed is not None else []
    words += [f"priority={request.priority}"] if request.priority else []
    words += [f"project={escape(request.project)}"] if request.project else []
    return " ".join(words)


def parse_line(line: str) -> PlaceRequest:
    """Return the request that `write_request` wrote."""
    words = cut(line)
    if not words:
        raise InvalidRequest("a request needs a name")
    return read_request(Settings.read(words[0], words[1:], REQUEST_WORDS))


def read_demand(settings: Settings, what: str) -> Demand:
    """Return the amounts, devices and NUMA mode that these words ask for."""
    amounts: dict[str, int] = {}
    for resource in BASE_RESOURCES:
        if resource != "disk" and resource not in settings:
            some = "1" if resource == "cpu" else "1GiB"
            raise settings.owner.error(
                f"{what} {settings.owner.text!r} has no {resource}",
                f"Maybe {resource}={some} in a file, --{resource} {some} on a command line.",
            )
        amounts[resource] = settings.convert(resource, read_amount(resource), 0)
    for resource, amount in amounts.items():
        if amount == 0 and resource != "disk":
            raise settings.word(resource).error(
                f"{resource} {settings.text(resource, '')!r} is zero; a VM needs some {resource}"
            )
    extended = tuple(
        (name, settings.convert(EXTENDED + name, parse_count, 0))
        for name in extended_names(settings)
    )
    return Demand(
        cpu_milli=amounts["cpu"],
        memory_bytes=amounts["memory"],
        disk_bytes=amounts["disk"],
        extended=extended,
        devices=_read_devices(settings),
        numa=settings.choose("numa", _NUMA, NumaMode.ANY),
    )


def _read_devices(settings: Settings) -> DeviceDemand | None:
    given = [key for key in settings if key.startswith("gpu")]
    count = settings.convert("gpu", parse_count, 1)
    if not given or count == 0:
        return None
    try:
        return DeviceDemand(
            count=count,
            milli=settings.convert("gpu-share", parse_count, WHOLE_DEVICE),
            models=settings.texts("gpu-model"),
            memory_bytes=settings.convert("gpu-memory", parse_bytes, 0),
        )
    except InvalidRequest as error:
        if "column" in error.details:
            raise
        at = "gpu-share" if "gpu-share" in settings else given[0]
        raise settings.word(at).error(error.message) from error


def write_demand(demand: Demand) -> list[str]:
    """Return the words from which `read_demand` makes this demand again."""
    words = [
        f"{resource_word(name)}={write_amount(name, amount)}"
        for name, amount in demand.amounts()
        if amount or name != "disk"
    ]
    if demand.devices is not None:
        words.append(f"gpu={demand.devices.count}")
        if demand.devices.milli != WHOLE_DEVICE:
            words.append(f"gpu-share={demand.devices.milli}")
        words += _write_list("gpu-model", demand.devices.models)
        if demand.devices.memory_bytes:
            words.append(f"gpu-memory={exact_bytes(demand.devices.memory_bytes)}")
    if demand.numa is not NumaMode.ANY:
        words.append(f"numa={demand.numa.value}")
    return words


def read_constraints(settings: Settings) -> Constraints:
    """Return the conditions and wishes that these words state."""
    return Constraints(
        labels=tuple(read_term(value) for value in settings.values("label")),
        tolerations=tuple(_read_toleration(item) for item in settings.items("tolerate")),
        architecture=settings.text("arch", "") or None,
        driver=settings.text("driver", "") or None,
        capabilities=settings.texts("capability"),
        zones=settings.texts("zone"),
        racks=settings.texts("rack"),
        sites=settings.texts("site"),
        pinned=settings.texts("pin"),
        excluded=settings.texts("exclude"),
        preferences=tuple(_read_preference(value) for value in settings.values("prefer")),
        near=tuple(_read_near(value) for value in settings.values("near")),
    )


def _read_near(value: Piece) -> NearRule:
    """Return how near something must be: "db-1 2ms 100mbit", "group:db 0.5ms"."""
    fields = value.fields()
    if len(fields) < 2:
        raise value.error(f"{value.text!r} is not VM LATENCY or BANDWIDTH", "Maybe 'db-1 2ms'?")
    name = fields[0].text
    found: dict[str, int] = {}
    for field in fields[1:]:
        match = _NEAR.match(field.text)
        if match is None or match["unit"] in found:
            raise field.error(f"{field.text!r} is no latency or bandwidth", "Maybe 2ms or 100mbit?")
        found[match["unit"]] = round(1000 * float(match["number"]))
    group = name.startswith(_GROUP)
    name = name.removeprefix(_GROUP)
    return NearRule(name, name, group, found.get("ms"), found.get("mbit"))


def read_term(value: Piece) -> LabelTerm:
    """Return a condition on a label: "tier in gold,silver", "ssd exists", "tier=gold"."""
    fields = value.fields(most=3)
    if len(fields) == 1:
        key, values = fields[0].partition("=")
        if values is None:
            raise value.error(
                f"label condition {value.text!r} has no operator", f"Maybe '{value.text} exists'?"
            )
        negated = key.masked.endswith("!")
        operator = LabelOperator.NOT_IN if negated else LabelOperator.IN
        fields = [key[:-1] if negated else key, values]
    elif fields:
        operator = choose(fields[1], "label operator", _OPERATORS)
        del fields[1]
    else:
        raise value.error("a label condition needs a label")
    given = fields[1].items("label") if len(fields) > 1 else []
    try:
        return LabelTerm(fields[0].text, operator, tuple(item.text for item in given))
    except InvalidRequest as error:
        raise value.error(error.message, error.hint) from error


def _read_preference(value: Piece) -> Preference:
    term, weight = value.rpartition(":")
    if weight is None:
        return Preference(read_term(term))
    try:
        return Preference(read_term(term), weight.convert(parse_count, "preference weight"))
    except InvalidRequest as error:
        if "column" in error.details:
            raise
        raise weight.error(error.message, error.hint) from error


def _read_toleration(item: Piece) -> Toleration:
    if item.masked == "*":
        return Toleration()
    key, value = item.partition("=")
    return Toleration(key.text, value.text if value is not None else None)


def write_constraints(constraints: Constraints) -> list[str]:
    """Return the words from which `read_constraints` makes these constraints again."""
    if constraints.predicate is not None:
        raise InvalidRequest(
            f"the compiled predicate {constraints.predicate.name!r} cannot be written as text"
        )
    words = [f'label="{_write_term(term)}"' for term in constraints.labels]
    if constraints.tolerations:
        words.append(f"tolerate={','.join(map(_write_toleration, constraints.tolerations))}")
    words += _write_list("zone", constraints.zones)
    words += _write_list("rack", constraints.racks)
    words += _write_list("site", constraints.sites)
    words += [f"arch={escape(constraints.architecture)}"] if constraints.architecture else []
    words += [f"driver={escape(constraints.driver)}"] if constraints.driver else []
    words += _write_list("capability", constraints.capabilities)
    words += _write_list("pin", constraints.pinned)
    words += _write_list("exclude", constraints.excluded)
    words += [f'prefer="{_write_term(p.term)}:{p.weight}"' for p in constraints.preferences]
    words += [f'near="{_write_near(rule)}"' for rule in constraints.near]
    return words


def _write_near(rule: NearRule) -> str:
    words = [escape(f"{_GROUP}{rule.name}" if rule.group else rule.name)]
    for amount, unit in ((rule.most_us, "ms"), (rule.least_kbit, "mbit")):
        if amount is not None:
            words.append(f"{amount // 1000}.{amount % 1000:03}{unit}")
    return " ".join(words)


def _write_list(key: str, items: tuple[str, ...]) -> list[str]:
    return [f"{key}={','.join(map(escape, items))}"] if items else []


def _write_term(term: LabelTerm) -> str:
    values = [",".join(map(escape, term.values))] if term.values else []
    return " ".join((escape(term.key), term.operator.value, *values))


def _write_toleration(toleration: Toleration) -> str:
    if not toleration.key and toleration.value is None:
        return "*"
    value = "" if toleration.value is None else f"={escape(toleration.value)}"
    return escape(toleration.key) + value


def read_group(words: list[Piece]) -> GroupSpec:
    """Return the group that its name, rule, scope and further words describe."""
    name, *rest = words
    if not rest:
        raise name.error(f"group {name.text!r} has no rule", f"Maybe one of {', '.join(_RULES)}.")
    rule = choose(rest.pop(0), "group rule", _RULES)
    scope, hard = Scope.HOST, True
    if rest and "=" not in rest[0].masked and rest[0].text not in ("soft", "hard"):
        scope = choose(rest.pop(0), "scope", _SCOPES)
    if rest and rest[0].text in ("soft", "hard"):
        hard = rest.pop(0).text == "hard"
    settings = Settings.read(name, rest, _GROUP_WORDS)
    try:
        return GroupSpec(
            name=name.text,
            rule=rule,
            scope=scope,
            hard=hard,
            max_skew=settings.convert("max-skew", parse_count, 1),
            weight=settings.convert("weight", parse_count, 50),
        )
    except InvalidRequest as error:
        if "column" in error.details:
            raise
        at = settings.word("max-skew" if "skew" in error.message else "weight")
        raise at.error(error.message) from error


def write_group(group: GroupSpec) -> list[str]:
    """Return the words from which `read_group` makes this group again."""
    words = [escape(group.name), group.rule.label, group.scope.label]
    words += [] if group.hard else ["soft"]
    words += [f"max-skew={group.max_skew}"] if group.max_skew != 1 else []
    words += [f"weight={group.weight}"] if group.weight != 50 else []
    return words
