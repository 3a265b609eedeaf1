"""From a body to what a policy says: everything that is wrong with it is refused here."""

from collections.abc import Sequence

from msgspec import UnsetType

from roost.base.errors import InvalidRequest
from roost.control.rules.writing import read_expression, thousandths
from roost.model.policies import OVERCOMMIT, WHOLE_RATIO, Bundle, PolicyRule, PolicySpread
from roost.placement.strategies import strategy_named
from roost.rules.fields import Fields
from roost.wire.policies import (
    BundleFields,
    ChangedFields,
    OvercommitBody,
    PolicyRuleBody,
    SpreadBody,
    WeightsBody,
)

_RESOURCES = ("cpu", "memory", "disk")


def bundle_of(body: BundleFields, fields: Fields) -> Bundle:
    """Return what a new policy says."""
    return checked(
        Bundle(
            body.strategy,
            _weights(body.weights),
            _rules(body.rules, fields),
            _overcommit(body.overcommit),
            _spread(body.spread),
            body.preemption,
            body.restart,
        )
    )


def changed_bundle(now: Bundle, body: ChangedFields, fields: Fields) -> Bundle:
    """Return what a policy says after a change; what the change leaves out stays."""
    weights, overcommit, spread = body.weights, body.overcommit, body.spread
    return checked(
        Bundle(
            now.strategy if isinstance(body.strategy, UnsetType) else body.strategy,
            now.weights if isinstance(weights, UnsetType) else _weights(weights),
            now.rules if isinstance(body.rules, UnsetType) else _rules(body.rules, fields),
            now.overcommit if isinstance(overcommit, UnsetType) else _overcommit(overcommit),
            now.spread if isinstance(spread, UnsetType) else _spread(spread),
            now.preemption if isinstance(body.preemption, UnsetType) else body.preemption,
            now.restart if isinstance(body.restart, UnsetType) else body.restart,
        )
    )


def checked(bundle: Bundle) -> Bundle:
    """Refuse what does not go together in one policy."""
    if bundle.strategy is not None:
        strategy = strategy_named(bundle.strategy)
        if bundle.weights and not strategy.weighs:
            raise InvalidRequest(
                f"the strategy {strategy.name!r} weighs no resources, so it takes no weights",
                strategy=strategy.name,
                hint="Maybe least_loaded, best_fit or worst_fit.",
            )
    return bundle


def _weights(body: WeightsBody | None) -> dict[str, int]:
    if body is None:
        return {}
    found = {name: getattr(body, name) for name in _RESOURCES}
    if not any(found.values()):
        raise InvalidRequest(
            "all weights are 0, so no host would be better than another",
            hint="Maybe leave the weights out.",
        )
    return found


def _rules(bodies: Sequence[PolicyRuleBody], fields: Fields) -> tuple[PolicyRule, ...]:
    found: dict[str, PolicyRule] = {}
    for body in bodies:
        if body.name in found:
            raise InvalidRequest(f"rule {body.name!r} is in the policy twice", rule=body.name)
        if body.name.startswith(OVERCOMMIT):
            raise InvalidRequest(
                f"rule {body.name!r} has the name of a bound of overcommitment", rule=body.name
            )
        text, _ = read_expression(body.expression, fields)
        weight = None if body.kind == "hard" else thousandths(body.weight)
        found[body.name] = PolicyRule(body.name, text, weight, body.priority, body.description)
    return tuple(found.values())


def _overcommit(body: OvercommitBody | None) -> dict[str, int]:
    if body is None:
        return {}
    given = {name: getattr(body, name) for name in _RESOURCES}
    return {name: round(ratio * WHOLE_RATIO) for name, ratio in given.items() if ratio is not None}


def _spread(body: SpreadBody | None) -> PolicySpread | None:
    if body is None:
        return None
    return PolicySpread(body.scope, body.kind == "hard", body.max_skew, body.weight)
