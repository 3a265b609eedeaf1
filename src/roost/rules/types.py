"""Types of the rule language, as the checker knows them.

`RECORD` types have a path, under which `fields.Fields` lists what they hold. `DYN` is what cannot
be known before a rule is evaluated; it goes with everything.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """A type: its name, those inside it, and for a record the path of its fields."""

    name: str
    inside: tuple["Type", ...] = ()
    path: str = ""

    def __str__(self) -> str:
        if self.inside:
            return f"{self.name}({', '.join(map(str, self.inside))})"
        return self.path or self.name


DYN = Type("dyn")
NULL = Type("null")
BOOL = Type("bool")
INT = Type("int")
DOUBLE = Type("double")
STRING = Type("string")
DURATION = Type("duration")

NUMBERS = (INT, DOUBLE)
ORDERED = (BOOL, INT, DOUBLE, STRING, DURATION)


def list_of(item: Type) -> Type:
    """Return the type of lists of these items."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps from these keys to these values."""
    return Type("map", (key, value))


def record(path: str) -> Type:
    """Return the type of the record whose fields begin with this path."""
    return Type("record", (), path)


def comparable(left: Type, right: Type) -> bool:
    """Say whether values of the two types can be equal at all."""
    if left == right or DYN in (left, right):
        return True
    if left in NUMBERS and right in NUMBERS:
        return True
    return (
        left.name == right.name
        and bool(left.inside)
        and all(comparable(a, b) for a, b in zip(left.inside, right.inside, strict=True))
    )


def joined(left: Type, right: Type) -> Type:
    """Return the one type that values of both types have: theirs, or DYN."""
    if left == right:
        return left
    if left.name == right.name and left.inside:
        pairs = zip(left.inside, right.inside, strict=True)
        return Type(left.name, tuple(joined(a, b) for a, b in pairs))
    return DYN
