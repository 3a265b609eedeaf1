"""Label selectors over pods, in one written form, so that equal rules are recognised as equal."""

from dataclasses import dataclass
from typing import Any

from roost.kube.translate.objects import Object

_IN, _NOT_IN, _EXISTS, _ABSENT = "In", "NotIn", "Exists", "DoesNotExist"


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Requirements that all hold, sorted; no requirement is satisfied by every pod."""

    requirements: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # key, operator, values

    def matches(self, labels: dict[str, str]) -> bool:
        """Say whether a pod with these labels is selected."""
        for key, operator, values in self.requirements:
            value = labels.get(key)
            if operator == _IN:
                holds = value in values
            elif operator == _NOT_IN:
                holds = value not in values
            else:
                holds = (value is not None) == (operator == _EXISTS)
            if not holds:
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


def _canonical(found: list[Any]) -> PodSelector:
    return PodSelector(tuple(sorted(set(found))))
