"""`roost policy`: bundles of how VMs are placed: made, compared, tried, applied, rolled back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from roost.base.errors import InvalidRequest
from roost.cli.show.screen import Output, show, show_document
from roost.cli.watch.lists import lists
from roost.cli.words.completing import (
    complete_from,
    complete_policies,
    complete_projects,
    complete_strategies,
)
from roost.cli.words.each import delete_each
from roost.cli.words.loading import new_group
from roost.cli.words.making import DescriptionOption, KeyOption, every_page
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.policies import PolicyDetail

#: How many policies a command asks for at once.
_PAGE = 100
_RESOURCES = ("cpu", "memory", "disk")

NameArgument = Annotated[
    str,
    typer.Argument(metavar="POLICY", help="Name of the policy.", autocompletion=complete_policies),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="POLICY...", help="Names of policies.", autocompletion=complete_policies
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", help="What it says, as YAML or JSON; options come before it."
    ),
]
StrategyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How a host is chosen for VMs that name no strategy; none clears it.",
        autocompletion=complete_strategies,
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="cpu=N,memory=N,disk=N",
        help="Shares of the resources in the strategy's score, 0 to 100; none clears them.",
    ),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="NAME=EXPRESSION",
        help='A hard rule, such as \'ssd=host.labels["disk"] == "ssd"\'; repeatable.',
    ),
]
PreferOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prefer",
        metavar="NAME:WEIGHT=EXPRESSION",
        help="A soft rule that counts by 0 to 1; repeatable.",
    ),
]
NoRulesOption = Annotated[bool, typer.Option("--no-rules", help="It has no rules any more.")]
OvercommitOption = Annotated[
    str | None,
    typer.Option(
        metavar="cpu=RATIO,...",
        help="The most that hosts promise for its VMs, over what they have; none clears it.",
    ),
]
SpreadOption = Annotated[
    str | None,
    typer.Option(
        metavar="SCOPE[:hard]",
        help="Spread a project's VMs over host, rack or zone; none clears it.",
    ),
]
PreemptionOption = Annotated[
    str | None,
    typer.Option(
        metavar="never|lower",
        help="Whether its VMs may displace lower ones; or none.",
        autocompletion=complete_from("never", "lower", "none"),
    ),
]
RestartOption = Annotated[
    str | None,
    typer.Option(
        metavar="here|elsewhere",
        help="Where its VMs start again when a host dies; or none.",
        autocompletion=complete_from("here", "elsewhere", "none"),
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Also if rules contradict each other or no host passes.")
]


@lists
def list_(session: Session) -> None:
    """List policies."""
    from roost.cli.show import policies
    from roost.wire.policies import PolicyPage

    found = every_page(
        lambda after: session.client.list_policies(limit=_PAGE, after=after),
        lambda page: page.policies,
    )
    session.show(PolicyPage(policies=found), policies.listed(found))


@asks_server
def show_(session: Session, policy: NameArgument) -> None:
    """Show a policy and its versions."""
    _show(session, session.client.get_policy(policy))


@asks_server
def create(
    session: Session,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="Name of the new policy.")],
    file: FileOption = None,
    strategy: StrategyOption = None,
    weights: WeightsOption = None,
    rule: RuleOption = None,
    prefer: PreferOption = None,
    overcommit: OvercommitOption = None,
    spread: SpreadOption = None,
    preemption: PreemptionOption = None,
    restart: RestartOption = None,
    description: DescriptionOption = None,
    force: ForceOption = False,
    key: KeyOption = None,
) -> None:
    """Create a policy; VMs are under it that name it, or whose project has it as its default."""
    from roost.wire.policies import CreatePolicy

    fields = _fields(file, strategy, weights, rule, prefer, overcommit, spread, preemption, restart)
    said = {name: value for name, value in fields.items() if value is not None}
    body = CreatePolicy(name=policy, description=description or "", force=force, **said)
    _show(session, session.client.create_policy(body, key=key))


@asks_server
def change(
    session: Session,
    policy: NameArgument,
    file: FileOption = None,
    strategy: StrategyOption = None,
    weights: WeightsOption = None,
    rule: RuleOption = None,
    prefer: PreferOption = None,
    no_rules: NoRulesOption = False,
    overcommit: OvercommitOption = None,
    spread: SpreadOption = None,
    preemption: PreemptionOption = None,
    restart: RestartOption = None,
    description: DescriptionOption = None,
    force: ForceOption = False,
) -> None:
    """Change a policy, as a new version; what is not named stays, rules are replaced together."""
    from roost.wire.policies import ChangePolicy

    fields = _fields(file, strategy, weights, rule, prefer, overcommit, spread, preemption, restart)
    if no_rules:
        fields["rules"] = []
    if description is not None:
        fields["description"] = description
    body = ChangePolicy(force=force, **fields)
    _show(session, session.client.change_policy(policy, body))


@asks_server
def delete(session: Session, policy: NamesArgument) -> None:
    """Delete policies that no project, rule or VM uses."""
    delete_each(session, "policy", policy, session.client.delete_policy)


@asks_server
def diff(
    session: Session,
    policy: NameArgument,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[OTHER]",
            help="Another policy to compare with.",
            autocompletion=complete_policies,
        ),
    ] = None,
    of: Annotated[
        int | None,
        typer.Option("--from", metavar="VERSION", min=1, help="Begin here (the last but one)."),
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", metavar="VERSION", min=1, help="End here (the newest).")
    ] = None,
) -> None:
    """Say what two versions of a policy, or two policies, say differently."""
    from roost.cli.show import policies

    found = session.client.diff_policy(policy, of=of, to=to, other=other)
    session.show(found, policies.diff(found))


@asks_server
def dry_run(
    session: Session,
    policy: Annotated[
        str,
        typer.Argument(
            metavar="POLICY",
            help="A policy with what would be different, or a new one.",
            autocompletion=complete_policies,
        ),
    ],
    project: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="As if it were the policy of all VMs of this project, too.",
            autocompletion=complete_projects,
        ),
    ] = None,
    requests: Annotated[
        int, typer.Option("--requests", metavar="N", min=0, help="Past requests to take again.")
    ] = 1000,
    file: FileOption = None,
    strategy: StrategyOption = None,
    weights: WeightsOption = None,
    rule: RuleOption = None,
    prefer: PreferOption = None,
    no_rules: NoRulesOption = False,
    overcommit: OvercommitOption = None,
    spread: SpreadOption = None,
    preemption: PreemptionOption = None,
    restart: RestartOption = None,
) -> None:
    """Take past requests again under a policy as it would be, and judge the VMs of today."""
    from roost.cli.show import policies
    from roost.wire.policies import DryRunPolicy

    fields = _fields(file, strategy, weights, rule, prefer, overcommit, spread, preemption, restart)
    if no_rules:
        fields["rules"] = []
    body = DryRunPolicy(name=policy, project=project, requests=requests, **fields)
    found = session.client.dry_run_policy(body)
    session.show(found, policies.dry_run(found))


@asks_server
def apply(
    session: Session,
    project: Annotated[
        str,
        typer.Argument(
            metavar="PROJECT", help="Whose new VMs it is for.", autocompletion=complete_projects
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The policy.", autocompletion=complete_policies),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="New VMs have no policy.")] = False,
) -> None:
    """Make a policy the default of a project: of new VMs that name none."""
    from roost.wire.policies import ApplyPolicy

    if (policy is None) is not none:
        raise InvalidRequest("say which policy, by --policy NAME, or --none")
    session.client.apply_policy(project, ApplyPolicy(policy=policy))
    if session.form is Output.TABLE:
        what = f"are under policy {policy}" if policy is not None else "have no policy"
        show(Text(f"new VMs of {project} {what} unless they name one"))
    else:
        show_document({"project": project, "policy": policy}, session.form)


@asks_server
def rollback(
    session: Session,
    policy: NameArgument,
    to: Annotated[int, typer.Option("--to", metavar="VERSION", min=1, help="To this version.")],
    force: ForceOption = False,
) -> None:
    """Let an earlier version of a policy hold again, as a new version."""
    from roost.wire.policies import RollBackPolicy

    body = RollBackPolicy(version=to, force=force)
    _show(session, session.client.roll_back_policy(policy, body))


def _fields(
    file: Path | None,
    strategy: str | None,
    weights: str | None,
    rule: list[str] | None,
    prefer: list[str] | None,
    overcommit: str | None,
    spread: str | None,
    preemption: str | None,
    restart: str | None,
) -> dict[str, Any]:
    """Return the fields of a body that were given; None clears one."""
    from roost.wire.policies import ChangedFields, OvercommitBody, WeightsBody
    from roost.wire.text.strictyaml import parse_strictly, read_text

    found: dict[str, Any] = {}
    if file is not None:
        read = parse_strictly(read_text(file), str(file), ChangedFields)
        found = {name: getattr(read, name) for name in read.__struct_fields__}
    for name, word in (("strategy", strategy), ("preemption", preemption), ("restart", restart)):
        if word is not None:
            found[name] = None if word == "none" else word
    if weights is not None:
        found["weights"] = _numbers(weights, "--weights", WeightsBody, int)
    if overcommit is not None:
        found["overcommit"] = _numbers(overcommit, "--overcommit", OvercommitBody, float)
    if spread is not None:
        found["spread"] = _spread(spread)
    if rule or prefer:
        found["rules"] = _rules(rule or [], prefer or [])
    for name, known in (("preemption", ("never", "lower")), ("restart", ("here", "elsewhere"))):
        value = found.get(name)
        if isinstance(value, str) and value not in known:
            raise InvalidRequest(f"--{name} is {' or '.join(known)}, not {value!r}")
    return found


def _numbers(text: str, option: str, kind: Any, number: Any) -> Any:
    """Return amounts by resource, such as cpu=2,memory=1.5."""
    if text == "none":
        return None
    found = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        try:
            if name not in _RESOURCES:
                raise ValueError(name)
            found[name] = number(value)
        except ValueError:
            raise InvalidRequest(
                f"{option} takes {', '.join(_RESOURCES)} with a number each, not {part!r}",
                hint=f"Maybe {option} cpu=2,memory=1.",
            ) from None
    return kind(**found)


def _spread(text: str) -> Any:
    from roost.wire.policies import SpreadBody

    scope, _, kind = text.partition(":")
    if scope == "none":
        return None
    if scope not in ("host", "rack", "zone") or kind not in ("", "hard", "soft"):
        raise InvalidRequest(f"--spread is host, rack or zone, or one with :hard, not {text!r}")
    return SpreadBody(scope=scope, kind="hard" if kind == "hard" else "soft")  # type: ignore[arg-type]


def _rules(hard: list[str], soft: list[str]) -> list[Any]:
    """Return rules that were typed as NAME=EXPRESSION, or with a weight behind the name."""
    from roost.cli.steering.rules import read_expression
    from roost.wire.policies import PolicyRuleBody

    found = []
    for text in hard:
        name, sign, expression = text.partition("=")
        if not sign:
            raise InvalidRequest(f"--rule takes NAME=EXPRESSION, not {text!r}")
        found.append(PolicyRuleBody(name=name.strip(), expression=read_expression(expression)))
    for text in soft:
        named, sign, expression = text.partition("=")
        name, _, weight = named.partition(":")
        try:
            counts = float(weight)
        except ValueError:
            sign = ""
        if not sign:
            raise InvalidRequest(f"--prefer takes NAME:WEIGHT=EXPRESSION, not {text!r}")
        found.append(
            PolicyRuleBody(
                name=name.strip(),
                expression=read_expression(expression),
                kind="soft",
                weight=counts,
            )
        )
    return found


def _show(session: Session, found: "PolicyDetail") -> None:
    from roost.cli.show import policies

    session.show(found, policies.detail(found))


policy = new_group(
    "policy",
    "Policies: bundles of how VMs are placed.",
    {
        "list": list_,
        "show": show_,
        "create": create,
        "change": change,
        "delete": delete,
        "diff": diff,
        "dry-run": dry_run,
        "apply": apply,
        "rollback": rollback,
    },
)
