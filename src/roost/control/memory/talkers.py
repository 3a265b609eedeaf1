"""Who talks with whom, and who must be near whom, as one process knows it.

Pairs come from the traffic matrix, where VMs stand by id or as PROJECT/NAME and groups as
`group:ID`; what a name means changes as VMs come, go and are renamed. Bounds come from the specs of
VMs, and bind both ends: whoever is placed next stays near those that must be near it.
"""

from collections.abc import Iterable, Iterator, Mapping

from roost.ledger.claims.capacity import MIGRATE_IN, RUN, claim_id
from roost.model.constraints import NearRule, Talk
from roost.model.vm import VMSpec
from roost.placement.nearness import MOST_PARTNERS

#: How a group stands in the traffic matrix.
GROUP = "group:"


class Talkers:
    """Pairs that talk, and bounds between VMs."""

    def __init__(self) -> None:
        self.pairs: dict[str, dict[str, int]] = {}  # by either end: the others, in kbit/s
        self.learnt: dict[str, dict[str, int]] = {}  # by VM: the others, where nothing is declared
        self.ids: dict[str, str] = {}  # VMs that names of pairs mean
        self._names: dict[str, set[str]] = {}  # the same by VM
        self._asks: dict[str, tuple[NearRule, ...]] = {}  # by VM
        self._bound: dict[str, set[str]] = {}  # by VM or group: who must be near it
        self.in_group: Mapping[str, tuple[str, ...]] = {}  # groups of VMs, as the roster has them

    def __bool__(self) -> bool:
        return bool(self.pairs or self.learnt or self._asks)

    # What is said

    def set_pairs(
        self,
        pairs: Iterable[tuple[str, str, int]],
        ids: Mapping[str, str],
        learnt: Iterable[tuple[str, str, int]] = (),
    ) -> None:
        """Replace the matrix; a pair that is declared twice counts with its larger rate.

        What was learnt, of VMs by id, counts for pairs that nobody has declared.
        """
        self.pairs, self.learnt, self.ids = _both_ways(pairs), _both_ways(learnt), dict(ids)
        self._names = {}
        for ref, vm in ids.items():
            self._names.setdefault(vm, set()).add(ref)

    def named(self, vm: str, name: str | None) -> None:
        """Note that a VM has this name (PROJECT/NAME) now, or is gone."""
        if not self.pairs:
            return
        for before in [ref for ref in self._names.get(vm, ()) if ref != name]:
            self._mean(before, None)
        if name is not None and name in self.pairs:
            self._mean(name, vm)

    def _mean(self, ref: str, vm: str | None) -> None:
        """Let a name mean a VM from now on, or none."""
        before = self.ids.pop(ref, None)
        if before is not None:
            self._names[before].discard(ref)
            if not self._names[before]:
                del self._names[before]
        if vm is not None:
            self.ids[ref] = vm
            self._names.setdefault(vm, set()).add(ref)

    def note(self, vm: str, spec: VMSpec | None) -> None:
        """Note how near a VM must be to others; None: it is gone."""
        rules = () if spec is None else spec.constraints.near
        for rule in self._asks.pop(vm, ()):
            bound = self._bound.get(_bound_key(rule))
            if bound is not None:
                bound.discard(vm)
        if rules:
            self._asks[vm] = rules
            for rule in rules:
                self._bound.setdefault(_bound_key(rule), set()).add(vm)

    # Asking

    def of(
        self, vm: str, name: str, near: tuple[NearRule, ...], groups: tuple[str, ...]
    ) -> tuple[Talk, ...]:
        """Return with whom a VM talks and to whom it must be near, in a fixed order."""
        if not (self.pairs or self.learnt or near or self._bound):
            return ()
        talks = self._heard(vm, name, groups)
        bounds: dict[str, list[tuple[NearRule, str]]] = {}
        for rule in near:
            for other in self._meant(rule):
                bounds.setdefault(other, []).append((rule, rule.name))
        for key in (vm, *(GROUP + each for each in groups)):
            for other in self._bound.get(key, ()):
                for rule in self._asks[other]:
                    if _bound_key(rule) == key:
                        bounds.setdefault(other, []).append((rule, other))
        bounds.pop(vm, None)
        found = []
        for other in sorted({*talks, *bounds} - {vm}):
            rules = [rule for rule, _ in bounds.get(other, ())]
            called = bounds[other][0][1] if rules else other
            us = min((r.most_us for r in rules if r.most_us is not None), default=None)
            kbit = max((r.least_kbit for r in rules if r.least_kbit is not None), default=None)
            found.append(Talk(claim_id(other, RUN), called, talks.get(other, 0), us, kbit))
            if rules:  # one that is on its way must be near where it comes from, and where it goes
                found.append(Talk(claim_id(other, MIGRATE_IN), called, 0, us, kbit))
        return tuple(found)

    def _meant(self, rule: NearRule) -> list[str]:
        return self.members(rule.of) if rule.group else [rule.of]

    def members(self, group: str) -> list[str]:
        """Return the VMs of a group."""
        return [vm for vm, groups in self.in_group.items() if group in groups]

    def by_group(self) -> dict[str, list[str]]:
        """Return the VMs of all groups, for who asks about many."""
        found: dict[str, list[str]] = {}
        for vm, groups in self.in_group.items():
            for group in groups:
                found.setdefault(group, []).append(vm)
        return found

    def _heard(self, vm: str, name: str, groups: tuple[str, ...]) -> dict[str, int]:
        """Return the VMs that a VM talks with most, in kbit/s."""
        found: dict[str, int] = {}
        for own in (vm, name, *(GROUP + each for each in groups)):
            for other, kbit in self.pairs.get(own, {}).items():
                for each in self.vms_of(other):
                    if each != vm:
                        found[each] = max(kbit, found.get(each, 0))
        found = {**self.learnt.get(vm, {}), **found}
        most = sorted(found.items(), key=lambda each: (-each[1], each[0]))
        return dict(most[:MOST_PARTNERS])

    def undeclared(self) -> Iterator[tuple[str, str, int]]:
        """Yield the pairs that only were learnt, once each: VMs by id, and kbit/s."""

        def refs(vm: str) -> tuple[str, ...]:
            groups = (GROUP + each for each in self.in_group.get(vm, ()))
            return (vm, *self._names.get(vm, ()), *groups)

        for one, others in self.learnt.items():
            said = [self.pairs[ref] for ref in refs(one) if ref in self.pairs]
            for other, kbit in others.items():
                if one < other and not any(ref in known for known in said for ref in refs(other)):
                    yield one, other, kbit

    def vms_of(self, ref: str) -> list[str]:
        """Return the VMs that one end of a pair stands for."""
        if ref.startswith(GROUP):
            return self.members(ref.removeprefix(GROUP))
        return self.vm_of(ref)

    def vm_of(self, ref: str) -> list[str]:
        """Return the VM that an end of a pair stands for that is no group; empty: there is none."""
        known = self.ids.get(ref)
        return [known] if known is not None else [ref] if "/" not in ref else []


def _both_ways(pairs: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for a, b, kbit in pairs:
        for one, other in ((a, b), (b, a)):
            known = found.setdefault(one, {})
            known[other] = max(kbit, known.get(other, 0))
    return found


def _bound_key(rule: NearRule) -> str:
    return GROUP + rule.of if rule.group else rule.of
