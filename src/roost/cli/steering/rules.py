"""`roost rule`: rules about where VMs may be (constraints): made, tried, checked."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest
from roost.cli.watch.lists import lists
from roost.cli.words.asking import read_labels
from roost.cli.words.completing import (
    OnlyProject,
    complete_policies,
    complete_projects,
    complete_rules,
    complete_vms,
)
from roost.cli.words.each import delete_each
from roost.cli.words.loading import new_group
from roost.cli.words.making import DescriptionOption, KeyOption, every_page
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.constraints import ConstraintDetail

#: What says when a rule holds, of what may be tried.
_CONDITION = ("when", "until", "time_zone")
#: How many rules a command asks for at once.
_PAGE = 1000

NameArgument = Annotated[
    str,
    typer.Argument(metavar="RULE", help="Name of the rule.", autocompletion=complete_rules),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(metavar="RULE...", help="Names of rules.", autocompletion=complete_rules),
]
ExpressionArgument = Annotated[
    str,
    typer.Argument(
        metavar="EXPRESSION",
        help='Condition on hosts, such as \'host.zone in ["a", "b"]\', or the same as a JSON '
        "tree; @FILE reads it from a file.",
    ),
]
OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        help="Whose rule it is; it binds this project's VMs alone (default: the fleet's).",
        autocompletion=complete_projects,
    ),
]
SelectorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--selector", metavar="KEY=VALUE", help="Only for VMs with this label; repeatable."
    ),
]
VMOption = Annotated[
    str | None,
    typer.Option(
        "--vm",
        metavar="VM",
        help="Only for this VM of the project.",
        autocompletion=complete_vms,
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Only for VMs under this policy.",
        autocompletion=complete_policies,
    ),
]
SoftOption = Annotated[
    float | None,
    typer.Option(
        "--soft", metavar="WEIGHT", min=0, max=1, help="Prefer rather than refuse, by 0 to 1."
    ),
]
PriorityOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, help="Of a soft rule: no sum of rules with a lower one outbids it."
    ),
]
ExpiresOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="It stops to hold after 30m, 2h, 7d ...")
]
WhenOption = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        help="It holds once this is true of the fleet or the time: 'fleet.load > 0.8'.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        help="With --when: it holds until this is true (default: until that is not).",
    ),
]
TimeZoneOption = Annotated[
    str | None,
    typer.Option(
        "--time-zone", metavar="ZONE", help="In which --when reads the time: Europe/Berlin."
    ),
]
DwellOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The least time between two switches (default: 60s)."),
]
RelaxOption = Annotated[
    str | None,
    typer.Option(
        "--relax-after",
        metavar="TIME",
        help="A hard rule is soft for a VM that has waited so long: 10m.",
    ),
]
NoExpiresOption = Annotated[bool, typer.Option("--no-expires", help="It does not expire any more.")]
NoUntilOption = Annotated[
    bool, typer.Option("--no-until", help="It holds until --when is not true any more.")
]
NoRelaxOption = Annotated[
    bool, typer.Option("--no-relax", help="It stays hard for VMs that wait, however long.")
]
AllVMsOption = Annotated[
    bool, typer.Option("--all-vms", help="For VMs of any labels: it has no selector any more.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Also if some VMs are left without any host.")
]


@lists
def list_(
    session: Session,
    project: OnlyProject = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only hard or only soft ones.")
    ] = None,
) -> None:
    """List rules: the fleet's, and those of projects."""
    from roost.cli.show import rules
    from roost.wire.constraints import ConstraintPage

    ask = partial(session.client.list_constraints, project=project, kind=kind, limit=_PAGE)
    found = every_page(lambda after: ask(after=after), lambda page: page.constraints)
    session.show(ConstraintPage(constraints=found), rules.listed(found))


@asks_server
def show_(session: Session, rule: NameArgument, project: OwnerOption = None) -> None:
    """Show a rule and its versions."""
    _show(session, session.client.get_constraint(rule, project=project))


@asks_server
def create(
    session: Session,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Name of the new rule.")],
    expression: ExpressionArgument,
    project: OwnerOption = None,
    selector: SelectorOption = None,
    vm: VMOption = None,
    policy: PolicyOption = None,
    soft: SoftOption = None,
    priority: PriorityOption = None,
    description: DescriptionOption = None,
    expires: ExpiresOption = None,
    when: WhenOption = None,
    until: UntilOption = None,
    time_zone: TimeZoneOption = None,
    dwell: DwellOption = None,
    relax_after: RelaxOption = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="It does not hold yet.")] = False,
    force: ForceOption = False,
    key: KeyOption = None,
) -> None:
    """Create a rule; it holds for whatever is placed from then on, VMs stay where they are."""
    from roost.wire.constraints import CreateConstraint

    body = CreateConstraint(
        name=rule,
        project=project,
        policy=policy,
        enabled=not disabled,
        force=force,
        **_fields(expression, selector, vm, soft, priority, description, expires),
        **_timing(when, until, time_zone, dwell, relax_after),
    )
    _show(session, session.client.create_constraint(body, key=key))


@asks_server
def change(
    session: Session,
    rule: NameArgument,
    expression: Annotated[
        str | None,
        typer.Option("--expression", metavar="EXPRESSION", help="Another condition, or @FILE."),
    ] = None,
    project: OwnerOption = None,
    selector: SelectorOption = None,
    soft: SoftOption = None,
    hard: Annotated[bool, typer.Option("--hard", help="Refuse rather than prefer.")] = False,
    priority: PriorityOption = None,
    description: DescriptionOption = None,
    expires: ExpiresOption = None,
    when: WhenOption = None,
    until: UntilOption = None,
    time_zone: TimeZoneOption = None,
    dwell: DwellOption = None,
    relax_after: RelaxOption = None,
    always: Annotated[
        bool, typer.Option("--always", help="It holds without a condition from now on.")
    ] = False,
    enable: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether it holds.")
    ] = None,
    no_expires: NoExpiresOption = False,
    no_until: NoUntilOption = False,
    no_relax: NoRelaxOption = False,
    all_vms: AllVMsOption = False,
    force: ForceOption = False,
) -> None:
    """Change a rule, as a new version; what is not named stays."""
    from roost.wire.constraints import ChangeConstraint

    if hard and soft is not None:
        raise InvalidRequest("a rule is hard or soft, not both")
    fields = _fields(expression, selector, None, soft, priority, description, expires)
    fields |= _timing(when, until, time_zone, dwell, relax_after)
    if always and when is not None:
        raise InvalidRequest("a rule holds always or under a condition, not both")
    taken_away: tuple[tuple[bool, str, str, str, dict[str, str] | None], ...] = (
        (always, "--always", "--when", "when", None),
        (no_expires, "--no-expires", "--expires", "expires_in_s", None),
        (no_until, "--no-until", "--until", "until", None),
        (no_relax, "--no-relax", "--relax-after", "relax_after_s", None),
        (all_vms, "--all-vms", "--selector", "selector", {}),
    )
    for asked, option, other, field, nothing in taken_away:
        if asked and field in fields:
            raise InvalidRequest(f"{option} takes away what {other} gives: one of them")
        if asked:
            fields[field] = nothing
    if hard:
        fields["kind"] = "hard"
    if enable is not None:
        fields["enabled"] = enable
    body = ChangeConstraint(force=force, **fields)
    _show(session, session.client.change_constraint(rule, body, project=project))


@asks_server
def delete(session: Session, rule: NamesArgument, project: OwnerOption = None) -> None:
    """Delete rules."""
    act = partial(session.client.delete_constraint, project=project)
    delete_each(session, "rule", rule, act)


@asks_server
def dry_run(
    session: Session,
    expression: ExpressionArgument,
    project: OwnerOption = None,
    selector: SelectorOption = None,
    vm: VMOption = None,
    policy: PolicyOption = None,
    soft: SoftOption = None,
    when: WhenOption = None,
    until: UntilOption = None,
    time_zone: TimeZoneOption = None,
    replaces: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="Try a change of this rule (of the project, with --project): it is not compared "
            "with what it is now, and what is not named is as it has it.",
            autocompletion=complete_rules,
        ),
    ] = None,
) -> None:
    """Say what a rule would mean for the fleet as it is now; nothing is written."""
    from roost.cli.show import rules
    from roost.wire.constraints import DryRunConstraint

    fields: dict[str, Any] = {}
    if replaces is not None:
        fields = _as_it_is(session.client.get_constraint(replaces, project=project))
    fields |= _fields(expression, selector, vm, soft, None, None, None)
    fields |= _timing(when, until, time_zone, None, None)
    if policy is not None:
        fields["policy"] = policy
    body = DryRunConstraint(project=project, **fields)
    found = session.client.dry_run_constraint(body)
    session.show(found, rules.dry_run(found))


@asks_server
def check(
    session: Session,
    project: OnlyProject = None,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="RULE", help="Only this one, by its id.", autocompletion=complete_rules
        ),
    ] = None,
) -> None:
    """List the VMs that hard rules find in the wrong place now; they stay where they are."""
    from roost.cli.show import rules

    found = session.client.check_constraints(project=project, rule=rule)
    session.show(found, rules.violations(found))


def _fields(
    expression: str | None,
    selector: list[str] | None,
    vm: str | None,
    soft: float | None,
    priority: int | None,
    description: str | None,
    expires: str | None,
) -> dict[str, Any]:
    """Return the fields of a body that were given."""
    from roost.cli.words.durations import read_duration

    found: dict[str, Any] = {"vm": vm, "priority": priority, "description": description}
    if expression is not None:
        found["expression"] = read_expression(expression)
    if selector:
        found["selector"] = read_labels(selector, "--selector")
    if soft is not None:
        found |= {"kind": "soft", "weight": soft}
    if expires is not None:
        found["expires_in_s"] = read_duration(expires)
    return {name: value for name, value in found.items() if value is not None}


def _timing(
    when: str | None,
    until: str | None,
    time_zone: str | None,
    dwell: str | None,
    relax_after: str | None,
) -> dict[str, Any]:
    """Return the fields of a body that say when a rule holds, and when it relaxes."""
    from roost.cli.words.durations import read_duration

    found: dict[str, Any] = {"when": when, "until": until, "time_zone": time_zone}
    if dwell is not None:
        found["dwell_s"] = read_duration(dwell)
    if relax_after is not None:
        found["relax_after_s"] = read_duration(relax_after)
    return {name: value for name, value in found.items() if value is not None}


def _as_it_is(rule: "ConstraintDetail") -> dict[str, Any]:
    """Return the fields of a body that tries a change of a rule: its name, and whom it is for."""
    return {
        name: getattr(rule, name)
        for name in ("name", "kind", "selector", "vm", "policy", *_CONDITION)
    }


def read_expression(given: str) -> str | dict[str, Any]:
    """Return a condition as it is sent: a text, or the tree that a JSON object is."""
    import msgspec

    text = given
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"cannot read {given[1:]!r}: {error}") from error
    if text.lstrip().startswith("{"):
        try:
            tree: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return text
        return tree
    return text


def _show(session: Session, found: "ConstraintDetail") -> None:
    from roost.cli.show import rules

    session.show(found, rules.detail(found))


rule = new_group(
    "rule",
    "Rules about where VMs may be.",
    {
        "list": list_,
        "show": show_,
        "create": create,
        "change": change,
        "delete": delete,
        "dry-run": dry_run,
        "check": check,
    },
)
