"""Which nodes a pod's own selector and required node affinity admit.

One term becomes label terms of the request; several, of which any may hold, become a predicate
that roost evaluates once for the whole fleet and keeps.
"""

from dataclasses import dataclass

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray
from roost.kube.base.objects import Object
from roost.model.constraints import LabelOperator, LabelTerm, Predicate

_OPERATORS = {
    "In": LabelOperator.IN,
    "NotIn": LabelOperator.NOT_IN,
    "Exists": LabelOperator.EXISTS,
    "DoesNotExist": LabelOperator.ABSENT,
    "Gt": LabelOperator.GREATER,
    "Lt": LabelOperator.LESS,
}


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Labels and names that must all hold."""

    labels: tuple[LabelTerm, ...] = ()
    named: tuple[str, ...] | None = None  # one of these nodes
    not_named: tuple[str, ...] = ()

    def matches(self, node: Object) -> bool:
        """Say whether a node satisfies the term."""
        name = node["metadata"]["name"]
        labels = node["metadata"].get("labels") or {}
        return (
            (self.named is None or name in self.named)
            and name not in self.not_named
            and all(term.matches(labels) for term in self.labels)
        )

    def column(self, fleet: Fleet) -> BoolArray:
        """Return which hosts of a fleet satisfy the term."""
        rows = np.arange(fleet.hosts.count)
        passes = np.ones(len(rows), np.bool_)
        for term in self.labels:
            passes &= fleet.hosts.labels.matches(term, rows)
        if self.named is not None:
            passes &= np.isin(rows, _rows(fleet, self.named))
        return passes & ~np.isin(rows, _rows(fleet, self.not_named))

    def __str__(self) -> str:
        words = [str(term) for term in self.labels]
        if self.named is not None:
            words.append(f"named {'|'.join(self.named)}")
        words += [f"not {name}" for name in self.not_named]
        return " and ".join(words)


def _rows(fleet: Fleet, names: tuple[str, ...]) -> list[int]:
    return [fleet.hosts.rows[name] for name in names if name in fleet.hosts.rows]


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The selector, which must hold, and the terms of which one must; no terms: no such rule."""

    selector: tuple[LabelTerm, ...] = ()
    terms: tuple[NodeTerm, ...] | None = None

    def matches(self, node: Object) -> bool:
        """Say whether a node satisfies both."""
        labels = node["metadata"].get("labels") or {}
        return all(term.matches(labels) for term in self.selector) and (
            self.terms is None or any(term.matches(node) for term in self.terms)
        )

    @property
    def only_term(self) -> NodeTerm | None:
        """Return the single term, if there is exactly one or none is asked for."""
        if self.terms is None:
            return NodeTerm(self.selector)
        if len(self.terms) == 1:
            [term] = self.terms
            return NodeTerm((*self.selector, *term.labels), term.named, term.not_named)
        return None

    def predicate(self) -> Predicate:
        """Return the terms as one rule of a request: any of them holds, or none can."""
        terms = self.terms or ()

        def column(fleet: Fleet) -> BoolArray:
            passes = np.zeros(fleet.hosts.count, np.bool_)
            for term in terms:
                passes |= term.column(fleet)
            return passes

        return Predicate("any node term of: " + " or ".join(map(str, terms)), column)


def node_choice(pod: Object) -> NodeChoice:
    """Return what a pod asks of a node's labels and name."""
    spec = pod["spec"]
    selector = tuple(
        LabelTerm(key, LabelOperator.IN, (value,))
        for key, value in sorted((spec.get("nodeSelector") or {}).items())
    )
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return NodeChoice(selector)
    terms = (node_term(each) for each in required.get("nodeSelectorTerms") or ())
    return NodeChoice(selector, tuple(term for term in terms if term is not None))


def node_term(term: Object) -> NodeTerm | None:
    """Return one term; None for an empty one, which no node satisfies."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return None
    labels = tuple(
        LabelTerm(each["key"], _OPERATORS[each["operator"]], tuple(each.get("values") or ()))
        for each in expressions
    )
    named: tuple[str, ...] | None = None
    not_named: list[str] = []
    for each in fields:  # a node has one field to ask about: its name
        values = tuple(each.get("values") or ())
        if each["operator"] == "In":
            named = values if named is None else tuple(name for name in named if name in values)
        else:
            not_named += values
    return NodeTerm(labels, named, tuple(not_named))
