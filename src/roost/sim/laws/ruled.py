"""Hard rules as the laws read them: from the rows of the ledger, by the plain interpreter.

Nothing here goes through the engine or the rulebook: a rule is the text in its row, asked about one
VM on one host. What a host has promised is asked about without the VM, as when it is placed.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct, json

from roost.rules.checking import Condition, condition
from roost.rules.evaluating import judge
from roost.rules.fields import FIELDS


class RuleRow(Struct, gc=False):
    """What the laws need of a constraint's row."""

    project: str
    expression: str
    kind: str
    enabled: bool
    vm: str = ""
    selector: str = ""
    active: bool | None = None
    version: int = 1
    relax_after_s: int | None = None
    policy: str | None = None


class PolicyRow(Struct, gc=False):
    """What the laws need of a policy's row."""

    bundle: str


class _PolicyRule(Struct, gc=False):
    name: str
    expression: str
    weight: int | None = None


class _Bundle(Struct, gc=False):
    rules: list[_PolicyRule] = []


_bundle = json.Decoder(_Bundle).decode


class RelaxationRow(Struct, gc=False):
    """What the laws need of a row that says whether a rule is relaxed for a VM."""

    version: int
    since_ms: int
    relaxed_ms: int | None = None


@lru_cache(maxsize=1024)
def _checked(text: str) -> Condition:
    return condition(text, FIELDS)


class RuledPlaces:
    """The rules of a world, and which of them a place breaks."""

    def __init__(self) -> None:
        self.rules: dict[str, RuleRow] = {}
        self._relaxed: dict[str, RelaxationRow] = {}  # by VM|RULE
        self._ended: list[str] = []

    def put(self, key: str, row: RuleRow | None) -> None:
        """Take over a constraint's row, or that it is gone."""
        if row is None:
            self.rules.pop(key, None)
        else:
            assert not row.selector, "VMs of simulated worlds have no labels"
            self.rules[key] = row

    def put_policy(self, name: str, row: PolicyRow | None) -> None:
        """Take over the rules of a policy, or that it is gone; a rule's row stands for each."""
        for key in [key for key, rule in self.rules.items() if rule.policy == name]:
            del self.rules[key]
        for rule in _bundle(row.bundle).rules if row is not None else ():
            kind = "hard" if rule.weight is None else "soft"
            self.rules[f"policy:{name}/{rule.name}"] = RuleRow(
                "", rule.expression, kind, enabled=True, policy=name
            )

    def relax(self, key: str, row: RelaxationRow | None) -> None:
        """Take over whether a rule is relaxed for a VM; what ends counts until the commit's end."""
        if row is None:
            self._ended.append(key)
        else:
            self._relaxed[key] = row

    def committed(self) -> None:
        """Forget what a commit has ended."""
        for key in self._ended:
            self._relaxed.pop(key, None)
        self._ended.clear()

    def _is_relaxed(self, vm_id: str, key: str, rule: RuleRow) -> bool:
        """Say whether a VM has waited as long as a rule, as it is now, asks for."""
        row, after_s = self._relaxed.get(f"{vm_id}|{key}"), rule.relax_after_s
        if row is None or row.relaxed_ms is None or row.version != rule.version or after_s is None:
            return False
        return row.relaxed_ms - row.since_ms >= 1000 * after_s

    def broken(
        self, vm_id: str, vm: Mapping[str, Any], host: Mapping[str, Any], policy: str
    ) -> str:
        """Return which hard rule that holds does not let a VM be on a host; empty if all do."""
        bindings = {"vm": vm, "host": host, "project": {"name": vm["project"]}}
        for key, rule in self.rules.items():
            holds = rule.enabled and rule.active is not False and rule.kind == "hard"
            its_own = rule.vm in ("", vm_id) and rule.project in ("", vm["project"])
            if rule.policy not in (None, policy) or self._is_relaxed(vm_id, key, rule):
                continue
            if holds and its_own and judge(_checked(rule.expression), bindings) is not True:
                return f"{key}: {rule.expression}"
        return ""
