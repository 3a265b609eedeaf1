"""`roost host set`: labels, taints, overcommitment and reserve, by name or selector."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest
from roost.cli.words.each import do_each
from roost.cli.words.nouns import HostsArgument
from roost.cli.words.selecting import SelectorOption, named_hosts
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.bodies import HostBody, SetHost, TaintBody


@asks_server
def set_(
    session: Session,
    host: HostsArgument = None,
    selector: SelectorOption = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE|KEY-", help="A label to set, or with a dash to take off."),
    ] = None,
    taint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=VALUE][:EFFECT]|KEY-",
            help="A taint to set (effect no-place or prefer-not), or with a dash to take off.",
        ),
    ] = None,
    overcommit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=RATIO", help="How far cpu, memory or disk is promised (cpu=4)."
        ),
    ] = None,
    reserve: Annotated[
        list[str] | None,
        typer.Option(metavar="RESOURCE=AMOUNT", help="What is kept back for the host (cpu=2)."),
    ] = None,
    as_agent: Annotated[
        list[str] | None,
        typer.Option(
            "--as-agent",
            metavar="WHAT",
            help="Take labels, taints, overcommit or reserve from the agent again.",
        ),
    ] = None,
) -> None:
    """Set labels, taints, overcommitment and reserve of hosts, in place of what their agents say.

    What is set holds at once and survives every registration of the agent. A host that can promise
    less than it has promised keeps its VMs and takes no new ones.
    """
    if not (label or taint or overcommit or reserve or as_agent):
        raise InvalidRequest("nothing to set", hint="Maybe --taint gpu=yes or --overcommit cpu=4.")
    ratios = _pairs(overcommit or [], "--overcommit", "cpu=4")
    kept = _pairs(reserve or [], "--reserve", "memory=8GiB")
    for what in as_agent or []:
        if what not in ("labels", "taints", "overcommit", "reserve"):
            raise InvalidRequest(
                f"--as-agent {what!r} is not labels, taints, overcommit or reserve"
            )

    def one(name: str) -> "HostBody":
        now = session.client.get_host(name)
        wanted = _wanted(now, label or [], taint or [], ratios, kept, as_agent or [])
        return session.client.set_host(name, wanted)

    do_each(session, "host", named_hosts(session, host, selector), one, _said)


def _wanted(
    now: "HostBody",
    labels: Sequence[str],
    taints: Sequence[str],
    ratios: dict[str, str],
    kept: dict[str, str],
    as_agent: Sequence[str],
) -> "SetHost":
    """Return the whole of each setting that a change names, from what a host has now."""
    from roost.cli.words.asking import read_labels
    from roost.wire.bodies import SetHost, TaintBody
    from roost.wire.hostsettings import CONDITION

    fields: dict[str, Any] = dict.fromkeys(as_agent)
    if labels:
        gone = {text[:-1] for text in labels if text.endswith("-") and "=" not in text}
        added = read_labels([t for t in labels if t[:-1] not in gone or "=" in t], "--label")
        if missing := gone - now.labels.keys():
            raise InvalidRequest(f"host {now.name!r} has no label {min(missing)!r}")
        left = {key: value for key, value in now.labels.items() if key not in gone}
        fields["labels"] = left | added
    if taints:
        gone = {text[:-1] for text in taints if text.endswith("-")}
        added_taints = [_taint(text) for text in taints if not text.endswith("-")]
        if missing := gone - {each["key"] for each in now.taints}:
            raise InvalidRequest(f"host {now.name!r} has no taint {min(missing)!r}")
        replaced = gone | {each.key for each in added_taints}
        stay = [
            TaintBody(**each)  # type: ignore[arg-type]
            for each in now.taints
            if each["key"] not in replaced and not each["key"].startswith(CONDITION)
        ]
        fields["taints"] = stay + added_taints
    had = now.overridden
    if ratios:
        before = {n: each for n, each in now.overcommit.items() if f"overcommit.{n}" in had}
        fields["overcommit"] = before | {name: _ratio(text) for name, text in ratios.items()}
    if kept:
        earlier: dict[str, Any] = {
            n: each for n, each in now.reserve.items() if f"reserve.{n}" in had
        }
        if "cpu" in earlier:
            earlier["cpu"] = f"{earlier['cpu']}m"
        fields["reserve"] = earlier | kept
    return SetHost(**fields)


def _pairs(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in ("cpu", "memory", "disk"):
            raise InvalidRequest(
                f"{option} {text!r} is not cpu, memory or disk with an amount",
                hint=f"Maybe {option} {example}.",
            )
        found[name] = value
    return found


def _ratio(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.001 <= found <= 1000:
        raise InvalidRequest(f"overcommitment {text!r} is not a number from 0.001 to 1000")
    return found


def _taint(text: str) -> "TaintBody":
    import msgspec

    from roost.wire.bodies import TaintBody

    mark, _, effect = text.partition(":")
    key, _, value = mark.partition("=")
    try:
        return msgspec.convert(
            {"key": key, "value": value, "effect": effect or "no-place"}, TaintBody
        )
    except msgspec.ValidationError:
        raise InvalidRequest(
            f"--taint {text!r} is not KEY[=VALUE][:EFFECT]",
            hint="Maybe --taint gpu=yes:no-place; effects are no-place and prefer-not.",
        ) from None


def _said(host: "HostBody") -> str:
    from roost.base.units import format_bytes, format_cpu

    taints = ", ".join(
        each["key"] + (f"={each['value']}" if each["value"] else "") for each in host.taints
    )
    labels = ", ".join(f"{key}={value}" for key, value in host.labels.items())
    over = ", ".join(f"{name} x{ratio:g}" for name, ratio in host.overcommit.items() if ratio != 1)
    kept = ", ".join(
        f"{format_cpu(amount)} cores" if name == "cpu" else f"{format_bytes(amount)} {name}"
        for name, amount in host.reserve.items()
        if amount
    )
    parts = (("taints", taints), ("labels", labels), ("overcommits", over), ("reserves", kept))
    said = "; ".join(f"{what} {text}" for what, text in parts if text)
    return f"{host.name}: {said or 'nothing special'}"
