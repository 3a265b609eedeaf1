"""What an operator can change about where a VM may be: zones, racks, label terms, tolerations.

They are typed and told in the words of `roost vm create`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from roost.model.constraints import Constraints
from roost.wire.bodies import ConstraintsBody
from roost.wire.text.requestwords import write_constraints
from roost.wire.translate import constraints_of

#: Fields of a create's constraints, and what a change of a VM calls them.
BINDING = {
    "zones": "zones", "racks": "racks", "labels": "label_terms", "tolerations": "tolerations"
}  # fmt: skip


def binding(constraints: Mapping[str, Any]) -> Constraints:
    """Return of constraints, as answers show them, those that can be changed so."""
    known = {name: constraints[name] for name in BINDING if name in constraints}
    return constraints_of(msgspec.convert(known, ConstraintsBody))


def in_words(bound: Constraints) -> str:
    """Return them in words: "label="ssd exists" zone=a"."""
    return " ".join(write_constraints(bound))


def same(one: Constraints, other: Constraints) -> bool:
    """Say whether two of them mean the same: their order is nothing."""
    return all(
        set(getattr(one, name)) == set(getattr(other, name))
        for name in ("zones", "racks", "labels", "tolerations")
    )
