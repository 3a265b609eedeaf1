"""Label selectors over pods, in one written form, so that equal rules are recognised as equal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.kube.base.objects import Object

_IN, _NOT_IN = "In", "NotIn"


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Requirements that all hold, sorted; no requirement is satisfied by every pod."""

    requirements: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # key, operator, values

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether a pod with these labels is selected."""
        for key, operator, values in self.requirements:
            value = labels.get(key)
            if not _holds(operator, value, values):
                return False
        return True

    def __and__(self, other: "PodSelector") -> "PodSelector":
        return _canonical([*self.requirements, *other.requirements])

    def __str__(self) -> str:
        words = []
        for key, operator, values in self.requirements:
            if operator == _IN and len(values) == 1:
                words.append(f"{key}={values[0]}")
            else:
                words.append(" ".join(filter(None, (key, operator, "|".join(values)))))
        return ",".join(words) or "every pod"


def pod_selector(selector: Object) -> PodSelector:
    """Return a selector as Kubernetes writes it; who has none selects nothing and is not asked."""
    found = [(key, _IN, (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    found += [
        (each["key"], each["operator"], tuple(sorted(set(each.get("values") or ()))))
        for each in selector.get("matchExpressions") or ()
    ]
    return _canonical(found)


def own_selector(rule: Object, labels: dict[str, str]) -> PodSelector | None:
    """Return whom a rule of a pod with these labels speaks of; None: of nobody.

    The keys that a rule takes from the pod's own labels are part of it.
    """
    if rule.get("labelSelector") is None:
        return None
    selector = pod_selector(rule["labelSelector"])
    more: list[tuple[str, str, tuple[str, ...]]] = []
    for field, operator in (("matchLabelKeys", _IN), ("mismatchLabelKeys", _NOT_IN)):
        more += [(key, operator, (labels[key],)) for key in rule.get(field) or () if key in labels]
    return selector & PodSelector(tuple(more))


def _holds(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values  # also what lacks the label
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False  # an operator of the future: the API server has checked what it knows


def _canonical(found: list[Any]) -> PodSelector:
    return PodSelector(tuple(sorted(set(found))))
