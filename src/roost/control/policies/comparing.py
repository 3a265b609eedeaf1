"""What two versions of a policy, or two policies, say differently."""

from collections.abc import Mapping

import msgspec

from roost.control.policies.reading import bundle_fields
from roost.ledger.schema.rows import PolicyRow
from roost.wire.bundles import read_bundle
from roost.wire.policies import DifferenceBody, PolicyDiffBody


def difference(before: PolicyRow, after: PolicyRow) -> PolicyDiffBody:
    """Return what is different, field by field and rule by rule."""
    one, other = _said(before), _said(after)
    return PolicyDiffBody(
        before=f"{before.name} version {before.version}",
        after=f"{after.name} version {after.version}",
        differences=[
            DifferenceBody(field=field, before=one.get(field), after=other.get(field))
            for field in dict.fromkeys((*one, *other))
            if one.get(field) != other.get(field)
        ],
    )


def _said(row: PolicyRow) -> Mapping[str, str]:
    """Return all that a policy says by field, each as one text; what it does not say is left out.

    What is nested has a dotted field of its own, a rule the field `rules.NAME`.
    """
    found = {"description": row.description} if row.description else {}
    said = msgspec.to_builtins(bundle_fields(read_bundle(row.bundle)))
    rules = {rule.pop("name"): rule for rule in said.pop("rules")}
    for name, value in (*said.items(), *((f"rules.{name}", rule) for name, rule in rules.items())):
        if isinstance(value, dict):
            found |= {f"{name}.{key}": str(each) for key, each in value.items()}
        elif value is not None:
            found[name] = str(value)
    return found
