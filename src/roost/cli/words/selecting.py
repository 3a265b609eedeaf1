"""Selectors: `-l zone=a,team!=b,ssd,!old` picks VMs or hosts by their labels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from roost.base.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from roost.cli.words.session import Session
    from roost.wire.bodies import HostBody, VMBody

SelectorOption = Annotated[
    str | None,
    typer.Option(
        "--selector",
        "-l",
        metavar="SELECTOR",
        help="Those whose labels match: zone=a,team!=b,ssd,!old.",
    ),
]

_EXAMPLE = (
    "Maybe -l zone=a,team!=b; `ssd` is for a label that is there, `!old` for one that is not."
)


class Term(NamedTuple):
    """One condition on labels."""

    key: str
    value: str | None  # None: whatever it is
    wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet the condition; a label that is missing has no value."""
        if self.value is None:
            return (self.key in labels) is self.wanted
        return (labels.get(self.key) == self.value) is self.wanted


class Selector(NamedTuple):
    """Conditions that must all hold."""

    text: str
    terms: tuple[Term, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet all conditions."""
        return all(term.holds(labels) for term in self.terms)

    def equal(self) -> dict[str, str]:
        """Return the labels that must be equal: a server can look for those itself."""
        return {t.key: t.value for t in self.terms if t.wanted and t.value is not None}


def read_selector(text: str) -> Selector:
    """Read a selector."""
    terms = []
    for part in text.split(","):
        word = part.strip()
        key, equals, value = word.partition("=")
        wanted = True
        if not equals:
            wanted = not word.startswith("!")
            term = Term(word.removeprefix("!").strip(), None, wanted)
        else:
            wanted = not key.endswith("!")
            term = Term(key.removesuffix("!").strip(), value.removeprefix("=").strip(), wanted)
        if not term.key or any(mark in term.key for mark in "!= "):
            raise InvalidRequest(f"selector {text!r}: {word!r} is no condition", hint=_EXAMPLE)
        terms.append(term)
    return Selector(text, tuple(terms))


def select_vms(session: "Session", selector: Selector, project: str | None) -> "list[VMBody]":
    """Return the VMs that a selector matches, by name; none is an error."""
    listed = session.client.all_vms(project=project, labels=selector.equal())
    found = [vm for vm in listed if selector.matches(vm.labels)]
    if not found:
        raise NotFound(f"no VM matches -l {selector.text!r}", selector=selector.text)
    return sorted(found, key=lambda vm: (vm.project, vm.name))


def select_hosts(session: "Session", selector: Selector) -> "list[HostBody]":
    """Return the hosts that a selector matches, by name; none is an error."""
    found = [host for host in session.client.all_hosts() if selector.matches(host.labels)]
    if not found:
        raise NotFound(f"no host matches -l {selector.text!r}", selector=selector.text)
    return sorted(found, key=lambda host: host.name)


def named_vms(
    session: "Session", names: list[str] | None, selector: str | None, project: str | None
) -> list[str]:
    """Return the VMs that a command is about: those named, or those that a selector matches."""
    _one_of(names, selector, "VM")
    if selector is None:
        return names or []
    return [vm.id for vm in select_vms(session, read_selector(selector), project)]


def named_hosts(session: "Session", names: list[str] | None, selector: str | None) -> list[str]:
    """Return the hosts that a command is about: those named, or those that a selector matches."""
    _one_of(names, selector, "host")
    if selector is None:
        return names or []
    return [host.name for host in select_hosts(session, read_selector(selector))]


def only_one(names: list[str], option: str, instead: str) -> str:
    """Return the only one that a command is about, where an option is for one."""
    if len(names) > 1:
        raise InvalidRequest(f"{option} is for one, not for {len(names)}", hint=f"Maybe {instead}.")
    return names[0]


def _one_of(names: list[str] | None, selector: str | None, what: str) -> None:
    if bool(names) == (selector is not None):
        said = f"{what}s are named and selected" if names else f"which {what}?"
        raise InvalidRequest(said, hint=f"Maybe name {what}s, or -l KEY=VALUE.")
