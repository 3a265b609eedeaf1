"""A rule of one class of VMs taken apart: what is kept, what the index prunes on, what is anew.

A rule holds where all its conjuncts hold, so each can be computed in the cheapest way that it
allows: KEPT ones once for the whole fleet, AMOUNTS ones by the kernels against the live columns,
ANEW ones for all hosts at every decision.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from roost.model.constraints import BoundRule, HostRequirements
from roost.placement.rules.folding import conjuncts, shown
from roost.placement.rules.lines import Line, lines_of
from roost.placement.rules.paths import Path, reads
from roost.rules.fields import FIELDS, Changes
from roost.rules.syntax import Expr


class How(Enum):
    """How a conjunct is computed."""

    KEPT = "kept until a host's attributes change"
    AMOUNTS = "compared with a host's amounts in the search"
    ANEW = "computed for every decision"


@dataclass(frozen=True, slots=True)
class Part:
    """One conjunct of a rule, with the rule's compiled patterns."""

    expr: Expr
    text: str
    how: How
    lines: tuple[Line, ...] = ()
    patterns: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Parts:
    """The conjuncts of a rule, the whole of it, and its compiled patterns."""

    whole: Expr
    conjuncts: tuple[Part, ...]
    patterns: Mapping[str, Any]


def parts_of(whole: Expr, patterns: Mapping[str, Any]) -> Parts:
    """Take what is left of a rule apart."""
    return Parts(whole, tuple(_part(each, patterns) for each in conjuncts(whole)), patterns)


def _part(expr: Expr, patterns: Mapping[str, Any]) -> Part:
    if is_kept(expr):
        return Part(expr, shown(expr), How.KEPT, (), patterns)
    lines = lines_of(expr)
    if lines is not None:
        return Part(expr, shown(expr), How.AMOUNTS, lines, patterns)
    return Part(expr, shown(expr), How.ANEW, (), patterns)


def hard_parts(terms: HostRequirements) -> Iterator[tuple[BoundRule, Part]]:
    """Yield every part of the hard rules that bind a VM, with its rule."""
    for rule in terms.rules:
        if rule.hard:
            parts: Parts = rule.parts
            for part in parts.conjuncts:
                yield rule, part


def by_attributes(rules: tuple[BoundRule, ...]) -> bool:
    """Say whether soft rules charge each host by its own attributes, without ranks."""
    return all(
        rule.priority == 0 and all(part.how is How.KEPT for part in rule.parts.conjuncts)
        for rule in rules
    )


def anew(terms: HostRequirements) -> bool:
    """Say whether some rule, hard or soft, must be computed for every decision."""
    for rule in terms.rules:
        parts: Parts = rule.parts
        if any(
            part.how is How.ANEW or (part.how is How.AMOUNTS and not rule.hard)
            for part in parts.conjuncts
        ):
            return True
    return False


def _changes() -> dict[Path, Changes]:
    return {
        tuple(path.replace("[]", "").split("."))[:2]: each.changes
        for path, each in FIELDS.by_path.items()
    }


_CHANGES = _changes()


def is_kept(expr: Expr) -> bool:
    """Say whether an expression reads only what a host's attributes decide."""
    return all(path[0] == "host" and _CHANGES.get(path[:2]) is Changes.HOST for path in reads(expr))
