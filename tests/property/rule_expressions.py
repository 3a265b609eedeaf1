"""Expressions of the rule language for property tests, and Google's CEL as the judge of them.

Trees are drawn by type, with a wrong type here and there, over a few variables. The language's own
additions (`quantity`, `cores`) have no twin in CEL and are not drawn.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cel_expr_python import cel
from hypothesis import strategies as st

from roost.rules.evaluating import key_value
from roost.rules.fields import Changes, Field, Fields
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
from roost.rules.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of
from roost.rules.values import Duration, Trouble

VALUES: dict[str, Any] = {
    "yes": True,
    "no": False,
    "one": 1,
    "two": 2,
    "most": 2**63 - 1,
    "half": 0.5,
    "word": "rack-12",
    "numbers": [3, 1, 2, 0],
    "words": ["a", "b", "rack-12"],
    "labels": {"disk": "nvme", "tier": "db"},
    "any": {"a": 1, "b": [1, "x", None, 2.0], "c": {"d": "e"}},
}
TYPES: dict[str, Type] = {
    "yes": BOOL,
    "no": BOOL,
    "one": INT,
    "two": INT,
    "most": INT,
    "half": DOUBLE,
    "word": STRING,
    "numbers": list_of(INT),
    "words": list_of(STRING),
    "labels": map_of(STRING, STRING),
    "any": DYN,
}
FIELDS = Fields(
    {name: Field(name, kind, Changes.VM, "a value of the test") for name, kind in TYPES.items()}
)

# ------------------------------------------------------------------------------------- drawing

_WHOLE = st.sampled_from([*range(-3, 4), *range(4), 2**63 - 1, -(2**63), 2**62, 1000])
_DOUBLES = st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.5, 3.0, 1e10, 9.3e18, 1e-7])
_TEXTS = st.one_of(
    st.sampled_from(["", "a", "b", "disk", "nvme", "rack-12", "12", "-7", "x1", '"', "\\", "é\n"]),
    st.text(max_size=4),
)
_PATTERNS = st.sampled_from(["^rack-[0-9]+$", "a|b", "", "[a-z]+", "(", "^$", "(?i)RACK", "\\d{2}"])
_NAMES = st.sampled_from(["disk", "tier", "a", "b", "c", "d", "other"])

SIMPLE = ("bool", "int", "double", "string", "duration", "list", "map", "null", "any")


def _literal(kind: str, value: Any) -> Expr:
    if kind == "double" and value == 0:
        return Literal("double", abs(value))
    return Literal(kind, value)


def _leaf(kind: str, scope: tuple[str, ...]) -> st.SearchStrategy[Expr]:
    named = [
        name for name, each in TYPES.items() if each.name == ("dyn" if kind == "any" else kind)
    ]
    names = st.sampled_from([*named, *scope]).map(Ident) if named or scope else st.nothing()
    match kind:
        case "bool":
            return st.one_of(st.booleans().map(lambda v: Literal("bool", v)), names)
        case "int":
            return st.one_of(_WHOLE.map(lambda v: Literal("int", v)), names)
        case "double":
            return st.one_of(_DOUBLES.map(lambda v: _literal("double", v)), names)
        case "string":
            return st.one_of(_TEXTS.map(lambda v: Literal("string", v)), names)
        case "duration":
            texts = st.sampled_from(["0", "1h", "90m", "1.5h", "-20s", "150ms", "1h30m", "x", "10"])
            return texts.map(lambda v: Call("duration", None, (Literal("string", v),)))
        case "list":
            return st.one_of(names, st.just(ListOf(())))
        case "map":
            return st.one_of(names, st.just(MapOf(())))
        case "null":
            return st.just(Literal("null", None))
    return names


@st.composite
def expressions(
    draw: st.DrawFn,
    kind: str = "bool",
    depth: int = 3,
    wrong: int = 40,
    scope: tuple[str, ...] = (),
) -> Expr:
    """Draw an expression that should be of this kind; one in `wrong` parts is of any other."""
    if wrong and draw(st.integers(0, wrong)) == wrong:
        kind = draw(st.sampled_from(SIMPLE))

    def part(inner: str, scope: tuple[str, ...] = scope) -> Expr:
        return draw(expressions(inner, depth - 1, wrong, scope))

    if depth <= 0 or draw(st.integers(0, 5)) == 0:
        return draw(_leaf(kind, scope))
    choice = draw(st.integers(0, 9))
    if choice == 0:
        return Conditional(part("bool"), part(kind), part(kind))
    if choice == 1:
        over = part(draw(st.sampled_from(("list", "list", "map"))))
        if kind not in ("list", "bool"):
            return Index(over, part("int"))
        name = draw(
            st.sampled_from(
                ("filter", "map", "map3") if kind == "list" else ("all", "exists", "exists_one")
            )
        )
        inner = (*scope, "item")
        if name == "map":
            return Macro("map", over, "item", None, part("int", inner))
        if name == "map3":
            return Macro("map", over, "item", part("bool", inner), part("string", inner))
        return Macro(name, over, "item", part("bool", inner))
    if choice == 2 and kind in ("int", "string", "any"):
        return draw(
            st.sampled_from(
                [
                    Select(Ident("labels"), draw(_NAMES)),
                    Select(Ident("any"), draw(_NAMES)),
                    Index(Ident("labels"), part("string")),
                    Index(Ident("numbers"), part("int")),
                    Index(Select(Ident("any"), "b"), part("int")),
                ]
            )
        )
    return _by_kind(draw, kind, part)


def _by_kind(draw: st.DrawFn, kind: str, part: Any) -> Expr:
    pick = lambda *options: draw(st.sampled_from(options))  # noqa: E731
    match kind:
        case "bool":
            return _condition(draw, pick, part)
        case "int":
            if pick(*range(5)) == 0:
                return Unary("-", _unsigned(part("int")))
            if pick(*range(5)) == 0:
                return Call("size", None, (part(pick("string", "list", "map")),))
            if pick(*range(6)) == 0:
                return Call("int", None, (part(pick("double", "string", "int")),))
            return Binary(pick("+", "-", "*", "/", "%"), part("int"), part("int"))
        case "double":
            if pick(*range(5)) == 0:
                return Call("double", None, (part(pick("int", "double")),))
            return Binary(pick("+", "-", "*", "/"), part("double"), part("double"))
        case "string":
            if pick(*range(5)) == 0:
                return Call("string", None, (part(pick("int", "bool", "string")),))
            return Binary("+", part("string"), part("string"))
        case "duration":
            return Binary(pick("+", "-"), part("duration"), part("duration"))
        case "list":
            if pick(True, False):
                return Binary("+", part("list"), part("list"))
            inner = pick("int", "string", "any", "bool")
            return ListOf(tuple(part(inner) for _ in range(pick(1, 2, 3))))
        case "map":
            keys = pick("string", "int", "bool")
            return MapOf(tuple((part(keys), part("int")) for _ in range(pick(1, 2))))
    return draw(_leaf(kind, ()))


def _condition(draw: st.DrawFn, pick: Any, part: Any) -> Expr:
    match pick(*range(9)):
        case 0:
            return Unary("!", _unsigned(part("bool")))
        case 1 | 2 | 3:
            operator = pick("&&", "||")
            terms: list[Expr] = []
            for _ in range(pick(2, 3)):
                term = part("bool")
                joins = isinstance(term, Logical) and term.operator == operator
                terms.extend(term.terms if joins else [term])
            return Logical(operator, tuple(terms))
        case 4 | 5:
            kind = pick("int", "double", "string", "bool", "duration", "list", "map", "any")
            other = pick(kind, kind, "int", "any")
            return Binary(pick("==", "!=", "<", "<=", ">", ">="), part(kind), part(other))
        case 6:
            inside = pick("list", "map")
            return Binary("in", part(pick("string", "int", "any")), part(inside))
        case 7:
            name = pick("startsWith", "endsWith", "contains", "matches")
            argument = Literal("string", draw(_PATTERNS)) if name == "matches" else part("string")
            return Call(name, part("string"), (argument,))
    return Has(pick(Ident("labels"), Ident("any"), part("map")), draw(_NAMES))


def _unsigned(expr: Expr) -> Expr:
    """Two signs in a row cancel out when they are parsed, so none is put before another."""
    return expr.operand if isinstance(expr, Unary) else expr


# --------------------------------------------------------------------------------- Google's CEL

_CEL = {
    "bool": cel.Type.BOOL,
    "int": cel.Type.INT,
    "double": cel.Type.DOUBLE,
    "string": cel.Type.STRING,
    "dyn": cel.Type.DYN,
}


def _cel_type(kind: Type) -> Any:
    if kind.name == "list":
        return cel.Type.List(_cel_type(kind.inside[0]))
    if kind.name == "map":
        return cel.Type.Map(_cel_type(kind.inside[0]), _cel_type(kind.inside[1]))
    return _CEL[kind.name]


ENV = cel.NewEnv(variables={name: _cel_type(kind) for name, kind in TYPES.items()})


@dataclass(frozen=True)
class Refused:
    """CEL does not compile the text."""

    message: str


@dataclass(frozen=True)
class Stopped:
    """CEL gave up instead of yielding its error value: a map has a key twice."""

    message: str


def google(text: str, *, checked: bool = False) -> Any:
    """Return what Google's CEL says: a value, ERROR, or that it does not compile."""
    try:
        program = ENV.compile(text, not checked)
    except RuntimeError as error:
        return Refused(str(error))
    try:
        found = program.eval(data=VALUES)
    except RuntimeError as error:
        return Stopped(str(error))
    if found.type().name() == "ERROR":
        return Trouble(str(found.plain_value()))
    return found.plain_value()


def alike(ours: Any, theirs: Any) -> bool:
    """Say whether our value is theirs: same type, same content, or trouble in both."""
    if isinstance(ours, Trouble) or isinstance(theirs, Trouble):
        return isinstance(ours, Trouble) and isinstance(theirs, Trouble)
    if isinstance(ours, Duration):
        return (
            isinstance(theirs, timedelta) and ours.ns == theirs // timedelta(microseconds=1) * 1000
        )
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, dict):
        plain = {key_value(key): value for key, value in ours.items()}  # true and 1 are two keys
        return plain.keys() == theirs.keys() and all(alike(plain[k], theirs[k]) for k in plain)
    return ours == theirs or (ours != ours and theirs != theirs)
