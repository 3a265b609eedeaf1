"""What pods ask about the place of other pods, as far as it is said by one group of roost.

A roost group has one rule that all members obey and are counted by (ADR-0006). A rule of a pod is
that when it speaks of pods like itself: its own namespace, and a selector that selects the pod too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from roost.kube.base.objects import Object
from roost.kube.base.selectors import PodSelector, own_selector
from roost.kube.translate.unsupported import Unsupported
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_FIELDS = {"podAffinity": GroupRule.AFFINITY, "podAntiAffinity": GroupRule.ANTI_AFFINITY}
HONOR, IGNORE = "Honor", "Ignore"


@dataclass(frozen=True, slots=True)
class PodRule:
    """One rule over the pods of a namespace that a selector selects."""

    namespace: str
    selector: PodSelector
    key: str  # the node label whose values are the domains
    rule: GroupRule
    hard: bool = True
    max_skew: int = 1
    weight: int = 50
    # Of spread: when fewer domains count as empty ones, and which nodes make up the domains.
    min_domains: int = 1
    node_affinity: str = HONOR
    node_taints: str = IGNORE

    def counts(self, pod: Object) -> bool:
        """Say whether a pod is one of those the rule speaks of; it need not obey the rule."""
        metadata = pod["metadata"]
        if metadata.get("namespace", "") != self.namespace:
            return False
        if self.rule is GroupRule.SPREAD and metadata.get("deletionTimestamp"):
            return False  # what ends is no longer spread, but still kept away from
        return self.selector.matches(metadata.get("labels") or {})

    def group(self, scope: Scope) -> GroupSpec:
        """Return the roost group of all whom the rule counts."""
        words = [f"{self.namespace}/{self.selector}", self.rule.label, "by", self.key]
        if self.rule is GroupRule.SPREAD:
            words.append(f"within {self.max_skew}")
        if not self.hard:
            words.append(f"at {self.weight}")
        return GroupSpec(" ".join(words), self.rule, scope, self.hard, self.max_skew, self.weight)


@dataclass(frozen=True, slots=True)
class AntiTerm:
    """A required anti-affinity term as it is, whether or not it is a group."""

    namespaces: frozenset[str] | None  # None: some that only a cluster can tell
    selector: PodSelector
    key: str

    def matches(self, pod: Object) -> bool:
        """Say whether a pod is kept away, or might be."""
        metadata = pod["metadata"]
        inside = self.namespaces is None or metadata.get("namespace", "") in self.namespaces
        return inside and self.selector.matches(metadata.get("labels") or {})


def anti_terms(pod: Object) -> Iterator[AntiTerm]:
    """Yield every required anti-affinity term of a pod."""
    for _, term, _ in _terms(pod, "podAntiAffinity"):
        if term["hard"] and (selector := own_selector(term, _labels(pod))) is not None:
            yield AntiTerm(_namespaces(pod, term), selector, term["topologyKey"])


def pod_rules(pod: Object) -> tuple[list[PodRule], list[Unsupported]]:
    """Return the rules of a pod that can be groups, and what cannot."""
    unsupported: list[Unsupported] = []
    rules = [*_affinity_rules(pod, unsupported), *_spread_rules(pod, unsupported)]
    return list(dict.fromkeys(rules)), unsupported


def _affinity_rules(pod: Object, unsupported: list[Unsupported]) -> Iterator[PodRule]:
    namespace, labels = pod["metadata"].get("namespace", ""), _labels(pod)
    together: list[PodRule] = []
    for field, rule in _FIELDS.items():
        for path, term, weight in _terms(pod, field):
            selector = own_selector(term, labels)
            hard = term["hard"]
            if _namespaces(pod, term) != frozenset({namespace}):
                why = "speaks of other namespaces; a group is of one"
            elif selector is None or not selector.matches(labels):
                why = "speaks of other pods than this one's like; a group's rule is its members'"
            else:
                found = PodRule(
                    namespace, selector, term["topologyKey"], rule, hard, weight=weight or 50
                )
                if rule is GroupRule.AFFINITY and hard:
                    together.append(found)
                else:
                    yield found
                continue
            unsupported.append(Unsupported(path, why, hard))
    # Only a pod that all required terms select counts for any of them.
    everyone = PodSelector()
    for found in together:
        everyone &= found.selector
    for found in together:
        yield PodRule(namespace, everyone, found.key, found.rule)


def _spread_rules(pod: Object, unsupported: list[Unsupported]) -> Iterator[PodRule]:
    labels = _labels(pod)
    for each in pod["spec"].get("topologySpreadConstraints") or ():
        hard = each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        selector = own_selector(each, labels)
        if selector is None or not selector.matches(labels):
            unsupported.append(
                Unsupported(
                    "topologySpreadConstraints", "counts other pods than this one's like", hard
                )
            )
            continue
        yield PodRule(
            pod["metadata"].get("namespace", ""),
            selector,
            each["topologyKey"],
            GroupRule.SPREAD,
            hard,
            max_skew=each["maxSkew"],
            min_domains=each.get("minDomains") or 1,
            node_affinity=each.get("nodeAffinityPolicy") or HONOR,
            node_taints=each.get("nodeTaintsPolicy") or IGNORE,
        )


def _terms(pod: Object, field: str) -> Iterator[tuple[str, Object, int]]:
    """Yield (path, term, weight) of an affinity field, terms that only wish marked as not hard."""
    found = (pod["spec"].get("affinity") or {}).get(field) or {}
    for term in found.get(_REQUIRED) or ():
        yield f"affinity.{field}", term | {"hard": True}, 0
    for each in found.get(_PREFERRED) or ():
        path = f"affinity.{field}, preferred"
        yield path, each["podAffinityTerm"] | {"hard": False}, each["weight"]


def _namespaces(pod: Object, term: Object) -> frozenset[str] | None:
    if term.get("namespaceSelector") is not None:
        return None
    return frozenset(term.get("namespaces") or (pod["metadata"].get("namespace", ""),))


def _labels(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}
