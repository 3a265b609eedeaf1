"""Rules without what they read of a project's VMs: for questions about VMs that are yet to come.

How many VMs a project has, and what they ask for, is known of now alone. A condition that reads it
is left out of its rule, with all that is joined to it by anything but `&&`; the others stay.
"""

from collections.abc import Iterator
from dataclasses import replace

from roost.model.rules import Rule, RuleSet
from roost.placement.rules.binding import read_besides_hosts
from roost.placement.rules.folding import conjuncts, joined
from roost.placement.rules.paths import Path, reads
from roost.rules.parsing import parse
from roost.rules.positions import NOWHERE
from roost.rules.printing import write


def without_counts(rules: RuleSet) -> RuleSet:
    """Return the rules without the conditions that count what projects have."""
    kept = tuple(_without(rules.rules))
    return rules if kept == rules.rules else replace(rules, rules=kept)


def _without(rules: tuple[Rule, ...]) -> Iterator[Rule]:
    for rule in rules:
        if not any(_counts(path) for path in read_besides_hosts(rule.expression)):
            yield rule
            continue
        terms = [
            part
            for part in conjuncts(parse(rule.expression))
            if not any(_counts(path) for path in reads(part))
        ]
        if terms:
            yield replace(rule, expression=write(joined("&&", terms, NOWHERE)))


def _counts(path: Path) -> bool:
    """Say whether a path reads more of a project than its name."""
    return path[0] == "project" and path != ("project", "name")
