"""What is left of a condition once its VM is known, remembered by what the condition reads of it.

A change of any rule makes a new `Binder`, and every class of VMs is bound anew under it. Only what
was not asked before is folded then: the same text with the same VM fields, names and time leaves
the same, whatever rules stand beside it. Which was used longest ago is forgotten first.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from roost.placement.rules.facts import Record
from roost.placement.rules.folding import TRUE, fold, shown, with_fields
from roost.placement.rules.parts import Parts, parts_of
from roost.placement.rules.paths import Path
from roost.rules.checking import Condition

#: What is left of a condition: its text and parts; None where it holds on every host.
Left = tuple[str, Parts] | None

_MOST_LEFT = 16_384


class VMFacts:
    """What rules read of one VM, its project and group, and the time, as values to compare."""

    __slots__ = ("_vm", "fields")

    def __init__(self, vm: Record, project: str, groups: list[str], clock: Mapping[str, int]):
        self._vm = vm
        self.fields: dict[Path, object] = {("fleet", name): at for name, at in clock.items()}
        self.fields["project", "name"] = project
        if groups:
            self.fields["group", "name"] = groups[0]

    def read(self, path: Path) -> Hashable:
        """Return what a path reads of all this, as something to compare; None: nothing."""
        if path[0] != "vm":
            return _frozen(self.fields.get(path[:2]))
        if len(path) == 1:
            return _frozen(self._vm)
        value = self._vm.get(path[1])
        if len(path) > 2 and isinstance(value, Mapping):
            value = value.get(path[2])
        return _frozen(value)

    def fold(self, condition: Condition) -> Left:
        """Work out what is left of a condition."""
        whole = fold(with_fields(condition.expr, self.fields), {"vm": self._vm})
        if whole == TRUE:
            return None
        return shown(whole), parts_of(whole, condition.patterns)


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple(sorted((name, _frozen(each)) for name, each in value.items()))
    return tuple(value) if isinstance(value, list) else value


class Remembered:
    """Answers by key, as many as there may be; the one used longest ago goes first."""

    def __init__(self, most: int = _MOST_LEFT) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, Left] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Left]) -> Left:
        """Return the answer of a key, made if it is not remembered.

        Engines in several threads share it. Each step is one operation of the dictionary, and an
        answer that is made twice is the same.
        """
        try:
            found = self._found[key]
            self._found.move_to_end(key)
        except KeyError:
            found = self._found[key] = make()
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        return found

    def __len__(self) -> int:
        return len(self._found)


_REMEMBERED = Remembered()


def left_of(condition: Condition, paths: tuple[Path, ...], facts: VMFacts) -> Left:
    """Return what is left of a condition that reads these paths for a VM."""
    key = (condition.text, tuple(facts.read(path) for path in paths))
    return _REMEMBERED.get(key, lambda: facts.fold(condition))
