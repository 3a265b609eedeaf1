"""Check the types and fields of a rule when it is made, so that no mistake waits for a placement.

`condition(text)` parses and checks; the `Condition` it returns is what the engine compiles and the
interpreter evaluates. A mistake is refused with its position and what was probably meant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.base.errors import RuleError
from roost.rules import suggesting
from roost.rules.costs import check_cost
from roost.rules.fields import AMOUNT_RECORDS, FIELDS, RESOURCE_UNITS, Changes, Field, Fields
from roost.rules.functions import FUNCTIONS
from roost.rules.mistakes import closest, mistake
from roost.rules.parsing import parse
from roost.rules.patterns import compile_pattern
from roost.rules.positions import Span
from roost.rules.syntax import (
    Binary,
    Call,
    Conditional,
    Expr,
    Has,
    Ident,
    Index,
    ListOf,
    Literal,
    Logical,
    Macro,
    MapOf,
    Select,
    Unary,
)
from roost.rules.types import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    ORDERED,
    STRING,
    Type,
    comparable,
    joined,
    list_of,
    map_of,
)
from roost.rules.values import Unanswerable

_LITERALS = {
    "null": NULL,
    "bool": BOOL,
    "int": INT,
    "double": DOUBLE,
    "string": STRING,
    "duration": DURATION,
}
#: Whole numbers this small are no amount of the unit: somebody thinks in cores or gigabytes.
_TOO_SMALL = {"millicores": 1_000, "bytes": 1_000_000}


@dataclass(frozen=True, slots=True)
class Read:
    """A field that a rule reads; `key` is the one label or resource it asks for, if only one."""

    field: Field
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A checked rule: its text, its tree, what it reads, and its compiled patterns."""

    text: str = field(compare=False)
    expr: Expr
    reads: frozenset[Read] = field(compare=False)
    patterns: Mapping[str, Any] = field(compare=False, repr=False)

    @property
    def changes(self) -> frozenset[Changes]:
        """Return everything that may change what the rule says."""
        return frozenset(read.field.changes for read in self.reads)


def condition(text: str, fields: Fields = FIELDS) -> Condition:
    """Parse and check the text of a rule, which must be a condition."""
    return checked(parse(text), text, fields)


def checked(expr: Expr, text: str, fields: Fields = FIELDS) -> Condition:
    """Check a tree that was parsed from this text; its value must be true or false."""
    checker = _Checker(text, fields)
    kind = checker.type_of(expr)
    if kind not in (BOOL, DYN):
        raise checker.mistake(
            expr.span,
            f"a rule is a condition; this is of type {kind}",
            suggesting.a_condition(checker.shown(expr), kind),
        )
    if checker.macros:  # without one a rule costs as many steps as it has parts
        check_cost(expr, text)
    return Condition(text, expr, frozenset(checker.reads), checker.patterns)


def type_of(expr: Expr, text: str, fields: Fields = FIELDS) -> Type:
    """Return the type of an expression that was parsed from this text, or refuse it."""
    return _Checker(text, fields).type_of(expr)


class _Checker:
    """One rule being checked; `scope` has the variables that macros have bound."""

    def __init__(self, text: str, fields: Fields) -> None:
        self.text = text
        self.fields = fields
        self.scope: dict[str, Type] = {}
        self.reads: list[Read] = []
        self.patterns: dict[str, Any] = {}
        self.macros = False

    def mistake(self, span: Span, message: str, maybe: str) -> RuleError:
        """Build the error of a mistake at this place."""
        return mistake(self.text, span, message, maybe=maybe)

    def shown(self, node: Expr) -> str:
        """Return a node as it is written, to be repeated in a suggestion."""
        simple = isinstance(node, Ident | Select | Index | Call | Macro)
        return suggesting.shown(self.text[node.span.start : node.span.end]) if simple else "..."

    def type_of(self, node: Expr) -> Type:
        """Return the type of a node whose value is used, or refuse the rule."""
        kind = self.operand_type(node)
        if kind.name == "record" and not kind.path.endswith("[]"):
            members = [*self.fields.members[kind.path]]
            raise self.mistake(
                node.span,
                f"{kind.path} is no value by itself",
                f"{kind.path}.{members[0]} or another of its fields is meant.",
            )
        return kind

    def operand_type(self, node: Expr) -> Type:
        """Return the type of a node, which may be a record if one of its fields is read."""
        match node:
            case Literal(kind):
                return _LITERALS[kind]
            case Select():
                return self.member(node)
            case Has():
                return self.has(node)
            case Ident():
                return self.ident(node)
            case Index():
                return self.index(node)
            case Call():
                return self.call(node)
            case Unary():
                return self.unary(node)
            case Binary():
                return self.binary(node)
            case Logical(operator, terms):
                for term in terms:
                    self.demand(term, f"{operator} joins conditions")
                return BOOL
            case Conditional(question, then, otherwise):
                self.demand(question, "what stands before ? is a condition")
                return self.branches(node, self.type_of(then), self.type_of(otherwise))
            case ListOf(items):
                return list_of(self.common(items))
            case MapOf(entries):
                keys = self.common(tuple(key for key, _ in entries))
                return map_of(keys, self.common(tuple(value for _, value in entries)))
            case Macro():
                return self.macro(node)

    def branches(self, node: Conditional, then: Type, otherwise: Type) -> Type:
        """Return the type of a conditional, both sides of which have it."""
        if not comparable(then, otherwise) or {then, otherwise} == {INT, DOUBLE}:
            raise self.mistake(
                node.span,
                f"both sides of : are of one type, and these are {then} and {otherwise}",
                suggesting.converted(":", then, otherwise),
            )
        return joined(then, otherwise)

    def demand(self, node: Expr, why: str, *, brackets: bool = False) -> None:
        """Refuse a node that is no condition."""
        kind = self.type_of(node)
        if kind not in (BOOL, DYN):
            raise self.mistake(
                node.span,
                f"{why}, and this is of type {kind}",
                suggesting.a_condition(self.shown(node), kind, brackets=brackets),
            )

    def common(self, items: tuple[Expr, ...]) -> Type:
        """Return the one type of several nodes."""
        kinds = [self.type_of(item) for item in items]
        found = kinds[0] if kinds else DYN
        for kind in kinds[1:]:
            found = joined(found, kind)
        return found

    # ------------------------------------------------------------------------------- fields

    def note(self, path: str, key: str | None = None) -> None:
        """Remember that the rule reads a field, or every field of a record."""
        known = self.fields.by_path
        if path in known:
            self.reads.append(Read(known[path], key))
        elif path in AMOUNT_RECORDS and key is not None:
            unit = RESOURCE_UNITS.get(key, "")
            means = f"the amount of {key}"
            self.reads.append(Read(Field(f"{path}.{key}", INT, AMOUNT_RECORDS[path], means, unit)))
        else:
            inside = (each for at, each in known.items() if at.startswith(f"{path}."))
            self.reads.extend(Read(each) for each in inside)

    def ident(self, node: Ident) -> Type:
        """Return the type of a variable."""
        if node.name in self.scope:
            return self.scope[node.name]
        kind = self.fields.members[""].get(node.name)
        if kind is None:
            known = [*self.fields.members[""], *self.scope]
            meant = closest(node.name, known)
            raise self.mistake(
                node.span,
                f"there is no variable {node.name!r}",
                f"{meant} is meant." if meant else f"one of {', '.join(known)} is meant.",
            )
        if kind.name != "record":
            self.note(node.name)
        return kind

    def member(self, node: Select | Has) -> Type:
        """Return the type of a field, or of a map's value."""
        kind = self.operand_type(node.operand)
        if kind.name == "record":
            members = self.fields.members[kind.path]
            found = members.get(node.field)
            if found is None:
                meant = closest(node.field, members)
                raise self.mistake(
                    _field_span(node),
                    f"{kind.path} has no field {node.field!r}",
                    f"{kind.path}.{meant} is meant."
                    if meant
                    else f"one of {', '.join(members)} is meant.",
                )
            if found.name != "record":
                self.note(f"{kind.path}.{node.field}")
            return found
        if kind.name == "map":
            self.note_key(node.operand, node.field)
            return kind.inside[1]
        if kind == DYN:
            return DYN
        raise self.mistake(
            node.span,
            f"a value of type {kind} has no fields",
            suggesting.behind(self.shown(node.operand), node.field, kind),
        )

    def path_of(self, node: Expr) -> str:
        """Return the dotted path of a field, or an empty text for anything else."""
        names: list[str] = []
        while isinstance(node, Select):
            names.append(node.field)
            node = node.operand
        if not isinstance(node, Ident) or node.name in self.scope:
            return ""
        return ".".join((node.name, *reversed(names)))

    def note_key(self, operand: Expr, key: str | None) -> None:
        """Remember which key of a map field is read, instead of all of them."""
        path = self.path_of(operand)
        if path in self.fields.by_path and key is not None:
            self.reads.pop()  # the whole map, noted when its type was asked for just before
            self.note(path, key)

    def has(self, node: Has) -> Type:
        """Check a test for a field."""
        self.member(node)
        return BOOL

    def index(self, node: Index) -> Type:
        """Return the type of a list's item or a map's value."""
        kind, index = self.operand_type(node.operand), self.type_of(node.index)
        key = node.index.value if isinstance(node.index, Literal) else None
        if kind.name == "record" and kind.path in AMOUNT_RECORDS:
            self.must_take(node.index, index, STRING, "a resource's name", '["cpu"]')
            self.note(kind.path, key if isinstance(key, str) else None)
            return INT
        if kind.name == "list":
            self.must_take(node.index, index, INT, "a place in a list", "[0]")
            return kind.inside[0]
        if kind.name == "map":
            if not comparable(kind.inside[0], index):
                raise self.mistake(
                    node.index.span,
                    f"keys are of type {kind.inside[0]}, and this is of type {index}",
                    f"a key of type {kind.inside[0]} is meant.",
                )
            self.note_key(node.operand, key if isinstance(key, str) else None)
            return kind.inside[1]
        if kind == DYN:
            return DYN
        raise self.mistake(
            node.span,
            f"a value of type {kind} has no items",
            f"{self.shown(node.operand)} is meant, without [...].",
        )

    def must_take(self, node: Expr, kind: Type, wanted: Type, what: str, example: str) -> None:
        """Refuse an index of another type."""
        if kind not in (wanted, DYN):
            raise self.mistake(
                node.span,
                f"{what} is of type {wanted}, and this is of type {kind}",
                suggesting.like(example),
            )

    # ---------------------------------------------------------------------------- operators

    def unary(self, node: Unary) -> Type:
        """Check that ! negates a condition and - a number."""
        if node.operator == "!":
            self.demand(node.operand, "! negates a condition", brackets=True)
            return BOOL
        kind = self.type_of(node.operand)
        if kind not in (INT, DOUBLE, DYN):
            raise self.mistake(
                node.span,
                f"- negates a number, and this is of type {kind}",
                suggesting.negated(kind),
            )
        return kind

    def binary(self, node: Binary) -> Type:
        """Check a comparison, `in`, or arithmetic."""
        left, right = self.type_of(node.left), self.type_of(node.right)
        match node.operator:
            case "in":
                return self.containment(node, left, right)
            case "==" | "!=":
                if not comparable(left, right):
                    raise self.mistake(
                        node.span,
                        f"{node.operator} compares {left} with {right}: they are never equal",
                        suggesting.converted(node.operator, left, right),
                    )
                self.units(node)
                return BOOL
            case "<" | "<=" | ">" | ">=":
                if not comparable(left, right) or not {left, right} <= {*ORDERED, DYN}:
                    raise self.mistake(
                        node.span,
                        f"{node.operator} does not compare {left} with {right}",
                        suggesting.converted(node.operator, left, right),
                    )
                self.units(node)
                return BOOL
        return self.arithmetic(node, left, right)

    def containment(self, node: Binary, left: Type, right: Type) -> Type:
        """Check that `in` looks for something that can be there."""
        if right.name not in ("list", "map", "dyn"):
            raise self.mistake(
                node.span,
                f"in looks into a list or a map, not into a {right}",
                suggesting.looked_for(left, right),
            )
        if right.inside and not comparable(left, right.inside[0]):
            raise self.mistake(
                node.span,
                f"in looks for a {left} among values of type {right.inside[0]}",
                suggesting.looked_for(left, right),
            )
        return BOOL

    def arithmetic(self, node: Binary, left: Type, right: Type) -> Type:
        """Check that an operator of arithmetic works on both types."""
        allowed: tuple[str, ...] = ("int", "double")
        if node.operator == "+":
            allowed = ("int", "double", "string", "list", "duration")
        elif node.operator == "-":
            allowed = ("int", "double", "duration")
        elif node.operator == "%":
            allowed = ("int",)
        known = [kind for kind in (left, right) if kind != DYN]
        fits = all(kind.name in allowed for kind in known)
        if not fits or not comparable(left, right) or {left, right} == {INT, DOUBLE}:
            raise self.mistake(
                node.span,
                f"{node.operator} does not work on {left} and {right}",
                suggesting.converted(node.operator, left, right),
            )
        return joined(left, right) if len(known) == 2 else known[0] if known else DYN

    def units(self, node: Binary) -> None:
        """Refuse an amount in millicores or bytes beside a number that cannot be one."""
        for one, other in ((node.left, node.right), (node.right, node.left)):
            found = self.fields.by_path.get(self.path_of(one))
            if found is None or not isinstance(other, Literal):
                continue
            number = other.value
            if isinstance(number, int | float) and 0 < number < _TOO_SMALL.get(found.unit, 0):
                call = "cores" if found.unit == "millicores" else "quantity"
                unit = "" if found.unit == "millicores" else "Gi"
                raise self.mistake(
                    other.span,
                    f"{found.path} counts {found.unit}; {number} of them are next to nothing",
                    f'{call}("{number}{unit}") is meant.',
                )

    # ---------------------------------------------------------------------- calls and macros

    def call(self, node: Call) -> Type:
        """Check a call against the ways the function can be called."""
        overloads = FUNCTIONS.get(node.function)
        if overloads is None:
            raise self.mistake(
                node.span,
                f"there is no function {node.function!r}",
                suggesting.a_function(node.function),
            )
        member = node.target is not None
        parts = (node.target, *node.arguments) if node.target is not None else node.arguments
        kinds = [self.type_of(part) for part in parts]
        for overload in overloads:
            if overload.member is member and _takes(overload.takes, kinds):
                self.constant(node, overload.call)
                return overload.gives
        if all(overload.member is not member for overload in overloads):
            how = f"x.{node.function}(...)" if not member else f"{node.function}(x)"
            raise self.mistake(
                node.span, f"{node.function} is called another way", f"{how} is meant."
            )
        given = ", ".join(map(str, kinds)) or "nothing"
        wanted = " or ".join(
            dict.fromkeys(
                ", ".join(map(str, overload.takes))
                for overload in overloads
                if overload.member is member
            )
        )
        raise self.mistake(
            node.span,
            f"{node.function}() takes {wanted}, not {given}",
            suggesting.a_call(node.function, kinds),
        )

    def constant(self, node: Call, function: Any) -> None:
        """Refuse a constant argument that the function cannot take, and compile a pattern."""
        last = node.arguments[-1] if node.arguments else None
        if not isinstance(last, Literal):
            return
        if node.function == "matches" and isinstance(last.value, str):
            try:
                self.patterns[last.value] = compile_pattern(last.value)
            except Unanswerable as error:
                maybe = suggesting.a_constant(node.function, last.value)
                raise self.mistake(last.span, str(error), maybe) from None
        elif node.target is None and len(node.arguments) == 1 and node.function != "size":
            try:
                function(last.value)
            except Unanswerable as error:
                maybe = suggesting.a_constant(node.function, last.value)
                raise self.mistake(last.span, str(error), maybe) from None

    def macro(self, node: Macro) -> Type:
        """Check a macro; its variable hides one of the same name."""
        self.macros = True
        over = self.type_of(node.over)
        if over.name not in ("list", "map", "dyn"):
            raise self.mistake(
                node.span,
                f"{node.name}() goes through a list or a map, not a {over}",
                suggesting.like(f'host.taints.{node.name}(item, item.key == "a")'),
            )
        if node.variable in self.fields.members[""]:
            raise self.mistake(
                node.span,
                f"{node.variable!r} is no name for the items of {node.name}(): it is a variable of "
                "every rule",
                "another name is meant.",
            )
        item = over.inside[0] if over.inside else DYN
        hidden = self.scope.get(node.variable)
        self.scope[node.variable] = item
        if node.predicate is not None:
            self.demand(node.predicate, f"{node.name}() asks a condition of each item")
        result = self.type_of(node.result) if node.result is not None else item
        del self.scope[node.variable]
        if hidden is not None:
            self.scope[node.variable] = hidden
        return list_of(result) if node.name in ("filter", "map") else BOOL


def _field_span(node: Select | Has) -> Span:
    """Return where the field's name stands, which ends a selection."""
    span, width = node.span, len(node.field)
    if isinstance(node, Has):
        return span
    return Span(span.line, span.column + span.end - width - span.start, span.end - width, span.end)


def _takes(wanted: tuple[Type, ...], kinds: list[Type]) -> bool:
    if len(wanted) != len(kinds):
        return False
    return all(
        kind in (want, DYN) or (want.inside != () and kind.name == want.name)
        for want, kind in zip(wanted, kinds, strict=True)
    )
