"""Parse the text of a rule into its tree.

A parser by operator precedence over the tokens of `scanning` (ADR-0026 says why it is written by
hand). The grammar is CEL's without messages, bytes, unsigned numbers and optional
syntax. Every refusal is a `RuleError` with its position; whatever the text, parsing takes time in
proportion to its length and never exhausts the stack.
"""

import re
from bisect import bisect_right
from math import inf

from roost.base.errors import RuleError
from roost.rules.mistakes import closest, mistake
from roost.rules.positions import Span
from roost.rules.scanning import BadString, scan, string_value
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
    children,
)
from roost.rules.values import INT_MAX, INT_MIN

#: Characters of one rule.
MAX_TEXT = 16_384
#: Levels that brackets, operators and calls may be nested; `&&` and `||` chains are one level.
MAX_DEPTH = 64
#: Items of one list or map that is written out, and arguments of one call.
MAX_ITEMS = 1_000

MACROS = {"all": (2,), "exists": (2,), "exists_one": (2,), "filter": (2,), "map": (2, 3)}

_RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let"),
        *("loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_NEWLINE = re.compile("\n")
#: Makes a Span in a third of the time that its own constructor takes: every node has one.
_made = tuple.__new__
_SURROGATE = re.compile("[\ud800-\udfff]")

_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}

#: What people of other languages write, and what it is called here.
_FOREIGN = {"and": "&&", "or": "||", "not": "!", "&": "&&", "|": "||", "=": "=="}
_FOREIGN |= dict.fromkeys("\u201c\u201d\u201e\u2018\u2019`", '"') | {"#": "//", "\u2264": "<="}
_FOREIGN |= {"\u2265": ">=", "\u2260": "!="}
#: What was probably meant where a mark stands behind what could be a whole rule.
_TOO_MANY = {
    **dict.fromkeys(")]}", "one bracket less is meant, or one that opens it."),
    ":": "c ? a : b or the like is meant.",
    ",": "[...] around a list is meant.",
    "not": "!(x in y) or the like is meant.",
}
_NAMED_VALUE = 'host.zone, "a", 1 or the like is meant.'
_WHOLE = f"a number from {INT_MIN} to {INT_MAX} is meant."
_FEWER = "a shorter list is meant; matches() compares with many texts at once."


def parse(text: str) -> Expr:
    """Return the tree of a rule, or refuse it with the position of its first mistake."""
    if len(text) > MAX_TEXT:
        raise RuleError(
            f"the rule has {len(text)} characters; at most {MAX_TEXT} are read",
            line=1,
            column=1,
            picture="",
            hint="Maybe split it: every rule of a scope must hold.",
        )
    parser = _Parser(text)
    if not text.isascii() and (half := _SURROGATE.search(text)) is not None:
        raise parser.mistake(
            "this is half a character",
            parser.span(half.start(), half.end()),
            maybe="the whole character is meant, of which this is one of two halves.",
        )
    return parser.whole()


def depth(expr: Expr) -> int:
    """Return how many levels a tree has, without recursion."""
    deepest, level = 0, [expr]
    while level:
        deepest += 1
        level = [child for node in level for child in children(node)]
    return deepest


class _Parser:
    """One text on its way to a tree; `at` is the number of the token in hand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds, self.tokens, self.starts = scan(text)
        self.lines = [0]  # where each line starts
        self.lines.extend(match.end() for match in _NEWLINE.finditer(text))
        self.single = len(self.lines) == 1  # most rules are one line
        self.at = 0
        self.kind = self.kinds[0]
        self.nesting = 0

    # -------------------------------------------------------------------------------- tokens

    def advance(self) -> None:
        """Take the next token in hand."""
        self.at += 1
        self.kind = self.kinds[self.at]

    def span(self, start: int, end: int) -> Span:
        """Return the span of a range of characters."""
        line = bisect_right(self.lines, start)
        return Span(line, start - self.lines[line - 1] + 1, start, end)

    def token_span(self, number: int) -> Span:
        """Return the span of one token; the end is where the next character would be."""
        start = self.starts[number]
        return self.span(start, start + max(1, len(self.tokens[number])))

    def since(self, first: int) -> Span:
        """Return the span from a token to the one before the token in hand."""
        last, starts = self.at - 1, self.starts
        start, end = starts[first], starts[last] + len(self.tokens[last])
        if self.single:
            return _made(Span, (1, start + 1, start, end))
        return self.span(start, end)

    # --------------------------------------------------------------------------- refusing

    def mistake(self, message: str, span: Span | None = None, *, maybe: str) -> RuleError:
        """Build the error of a mistake at the token in hand, or at the span."""
        if span is None:
            if self.kind == "unreadable":
                return self.unreadable()
            span = self.token_span(self.at)
        return mistake(self.text, span, message, maybe=maybe)

    def unreadable(self) -> RuleError:
        """Build the error of a character with which no token begins."""
        start = self.starts[self.at]
        char = self.text[start]
        span = self.span(start, start + 1)
        if char in "\"'":
            message = f"the string that begins here has no closing {char}"
            return mistake(self.text, span, message, maybe=f"{char} is meant behind the text.")
        meant = _FOREIGN.get(char)
        maybe = "a text is meant: it stands in quotes." if meant is None else f"{meant} is meant."
        return mistake(self.text, span, f"{char!r} is not part of the language", maybe=maybe)

    def found(self) -> str:
        """Say what the token in hand is."""
        return "the rule ends" if self.kind == "end" else f"{self.tokens[self.at]!r} stands here"

    def expect(self, mark: str, opening: int) -> None:
        """Take the mark that belongs to an earlier one, or refuse."""
        if self.kind != mark:
            earlier = self.token_span(opening)
            raise self.mistake(
                f"{mark!r} is missing for the {self.tokens[opening]!r} of line {earlier.line}, "
                f"column {earlier.column}: {self.found()}",
                maybe=self.instead_of(mark),
            )
        self.advance()

    def instead_of(self, mark: str) -> str:
        """Suggest what was meant by the token in hand, where a mark was expected."""
        if self.kind == "end":
            return f"{mark} is meant at the end."
        token = self.tokens[self.at]
        return f"{_FOREIGN.get(token, mark)} is meant here."

    def too_deep(self, span: Span) -> RuleError:
        """Build the error of what is nested too deep."""
        return self.mistake(
            f"the rule is nested more than {MAX_DEPTH} levels deep",
            span,
            maybe="several rules are meant, or a chain of && or ||, which is one level.",
        )

    # ------------------------------------------------------------------------------ grammar

    def whole(self) -> Expr:
        """Read the text to its end."""
        if self.kind == "end":
            raise self.mistake("the rule is empty", maybe='host.zone == "a" or the like is meant.')
        expr = self.expression()
        if self.kind != "end":
            raise self.mistake(
                f"the rule could end before {self.tokens[self.at]!r}, which does not continue it",
                maybe=self.continued(),
            )
        if len(self.tokens) > MAX_DEPTH and depth(expr) > MAX_DEPTH:
            raise self.too_deep(expr.span)
        return expr

    def continued(self) -> str:
        """Suggest how the token in hand continues what stands before it."""
        token = self.tokens[self.at]
        if token in _TOO_MANY:
            return _TOO_MANY[token]
        if token in _FOREIGN:
            return f"{_FOREIGN[token]} is meant."
        if (call := closest(token, ("startsWith", "endsWith", "contains", "matches"))) is not None:
            return f"x.{call}(y) is meant."
        return "&& or || is meant before it."

    def expression(self) -> Expr:
        """Read `a ? b : c`, or what binds tighter."""
        self.nesting += 1
        if self.nesting > MAX_DEPTH:
            raise self.too_deep(self.token_span(self.at))
        first = self.at
        expr = self.operators(1)
        if self.kind == "?":
            mark = self.at
            self.advance()
            then = self.operators(1)
            self.expect(":", mark)
            expr = Conditional(expr, then, self.expression(), span=self.since(first))
        self.nesting -= 1
        return expr

    def operators(self, level: int) -> Expr:
        """Read operators of at least this precedence, from left to right."""
        first = self.at
        expr = self.unary() if self.kind in ("!", "-") else self.member(self.at)
        while (precedence := _PRECEDENCE.get(self.kind, 0)) >= level:
            operator = self.kind
            if precedence <= 2:
                expr = self.logical(operator, expr, first)
                continue
            self.advance()
            right = self.operators(precedence + 1)
            expr = Binary(operator, expr, right, span=self.since(first))
        return expr

    def logical(self, operator: str, expr: Expr, first: int) -> Expr:
        """Read the rest of a chain of `&&` or `||`; chains inside it join it."""
        terms: list[Expr] = []
        while True:
            if isinstance(expr, Logical) and expr.operator == operator:
                terms.extend(expr.terms)
            else:
                terms.append(expr)
            if self.kind != operator:
                return Logical(operator, tuple(terms), span=self.since(first))
            self.advance()
            expr = self.operators(_PRECEDENCE[operator] + 1)

    def unary(self) -> Expr:
        """Read `!` or `-` before a member; an even number of them cancels out."""
        first, operator, odd = self.at, self.kind, False
        while self.kind == operator:
            odd = not odd
            self.advance()
        if operator == "-" and odd and self.kind in ("int", "double"):
            # The sign belongs to the number: -9223372036854775808 has no positive twin.
            return self.member(first, self.number(first))
        operand = self.member(self.at)
        return Unary(operator, operand, span=self.since(first)) if odd else operand

    def member(self, first: int, expr: Expr | None = None) -> Expr:
        """Read what stands alone, and the dots, brackets and calls behind it."""
        if expr is None:
            expr = self.fields() if self.kind == "word" else self.primary()
        while True:
            if self.kind == ".":
                self.advance()
                expr = self.selection(expr, first)
            elif self.kind == "[":
                opening = self.at
                self.advance()
                index = self.expression()
                self.expect("]", opening)
                expr = Index(expr, index, span=self.since(first))
            else:
                return expr

    def fields(self) -> Expr:
        """Read a variable and the fields behind it as far as nothing is called.

        Most of a rule is made of these: each step here saves two calls.
        """
        expr = self.name()
        if not isinstance(expr, Ident):
            return expr
        at, kinds, tokens, starts = self.at, self.kinds, self.tokens, self.starts
        start = starts[at - 1]
        while kinds[at] == "." and kinds[at + 1] == "word" and kinds[at + 2] != "(":
            end = starts[at + 1] + len(tokens[at + 1])
            span = _made(Span, (1, start + 1, start, end)) if self.single else self.span(start, end)
            expr = Select(expr, tokens[at + 1], span=span)
            at += 2
        self.at, self.kind = at, kinds[at]
        return expr

    def selection(self, operand: Expr, first: int) -> Expr:
        """Read the name behind a dot, and its arguments if it is called."""
        if self.kind != "word":
            quoted = f"[{self.tokens[self.at]}]" if self.kind == "string" else '["..."]'
            raise self.mistake(
                f"a field's name is missing behind the dot: {self.found()}",
                maybe=f"a name such as zone is meant, or {quoted} without the dot.",
            )
        name, at = self.tokens[self.at], self.at
        self.advance()
        if self.kind != "(":
            return Select(operand, name, span=self.since(first))
        arguments = self.arguments()
        if name in MACROS:
            return self.macro(name, operand, arguments, first, at)
        return Call(name, operand, arguments, span=self.since(first))

    def arguments(self) -> tuple[Expr, ...]:
        """Read the arguments of a call, brackets included."""
        opening = self.at
        self.advance()
        if self.kind == ")":
            self.advance()
            return ()
        return self.items(")", opening, trailing=False)

    def items(self, closing: str, opening: int, *, trailing: bool) -> tuple[Expr, ...]:
        """Read expressions between commas up to the closing mark."""
        found: list[Expr] = []
        while not (trailing and self.kind == closing):
            if len(found) == MAX_ITEMS:
                raise self.mistake(
                    f"there are more than {MAX_ITEMS} items here",
                    self.token_span(opening),
                    maybe=_FEWER,
                )
            found.append(self.expression())
            if self.kind != ",":
                break
            self.advance()
        self.expect(closing, opening)
        return tuple(found)

    def macro(
        self, name: str, over: Expr, arguments: tuple[Expr, ...], first: int, at: int
    ) -> Expr:
        """Build a macro, whose first argument is a variable's name."""
        if len(arguments) not in MACROS[name]:
            counts = " or ".join(str(count) for count in MACROS[name])
            raise self.mistake(
                f"{name}() takes {counts} arguments, not {len(arguments)}",
                self.token_span(at),
                maybe=f"x.{name}(item, item > 0) or the like is meant.",
            )
        variable, *rest = arguments
        if not isinstance(variable, Ident):
            raise self.mistake(
                f"the first argument of {name}() is the name of a new variable",
                variable.span,
                maybe=f"x.{name}(item, ...) is meant.",
            )
        span = self.since(first)
        if name == "map":
            predicate = rest[0] if len(rest) == 2 else None
            return Macro(name, over, variable.name, predicate, rest[-1], span=span)
        return Macro(name, over, variable.name, rest[0], span=span)

    def primary(self) -> Expr:
        """Read a literal, a name, a call, a list, a map, or something in brackets."""
        opening = self.at
        match self.kind:
            case "word":
                return self.name()
            case "int" | "double":
                return self.number()
            case "string":
                return self.string()
            case "true" | "false":
                self.advance()
                return Literal("bool", self.kinds[opening] == "true", span=self.since(opening))
            case "null":
                self.advance()
                return Literal("null", None, span=self.since(opening))
            case "(":
                self.advance()
                expr = self.expression()
                self.expect(")", opening)
                return expr
            case "[":
                self.advance()
                items = self.items("]", opening, trailing=True)
                return ListOf(items, span=self.since(opening))
            case "{":
                return self.map()
        unequal = self.at > 0 and (self.tokens[self.at - 1], self.kind) == ("<", ">")
        raise self.mistake(
            f"a value is missing here: {self.found()}",
            maybe="!= is meant." if unequal else _NAMED_VALUE,
        )

    def map(self) -> Expr:
        """Read `{key: value, ...}`."""
        opening = self.at
        self.advance()
        entries: list[tuple[Expr, Expr]] = []
        while self.kind != "}":
            if len(entries) == MAX_ITEMS:
                raise self.mistake(
                    f"there are more than {MAX_ITEMS} items here",
                    self.token_span(opening),
                    maybe=_FEWER,
                )
            key = self.expression()
            if self.kind != ":":
                listed = self.kind in (",", "}")
                raise self.mistake(
                    f"':' is missing behind the key: {self.found()}",
                    maybe="a list is meant: [...]." if listed else self.instead_of(":"),
                )
            self.advance()
            entries.append((key, self.expression()))
            if self.kind != ",":
                break
            self.advance()
        self.expect("}", opening)
        return MapOf(tuple(entries), span=self.since(opening))

    def name(self) -> Expr:
        """Read a variable or a call."""
        first, word = self.at, self.tokens[self.at]
        if word in _RESERVED:
            raise self.mistake(
                f"{word!r} is a reserved word",
                maybe="c ? a : b is meant." if word in ("if", "else") else "another name is meant.",
            )
        if word == "not":
            raise self.mistake("'not' is not part of the language", maybe="! is meant.")
        self.advance()
        if self.kind != "(":
            return Ident(word, span=self.since(first))
        arguments = self.arguments()
        if word != "has":
            return Call(word, None, arguments, span=self.since(first))
        selected = arguments[0] if len(arguments) == 1 else None
        if not isinstance(selected, Select):
            raise self.mistake(
                "has() takes one field with its dot",
                self.token_span(first),
                maybe="has(host.labels.gpu) or the like is meant.",
            )
        return Has(selected.operand, selected.field, span=self.since(first))

    def number(self, sign: int | None = None) -> Expr:
        """Read a number; `sign` is the token of the minus before it."""
        at, kind, text = self.at, self.kind, self.tokens[self.at]
        end = self.starts[at] + len(text)
        follows = self.text[end : end + 1]
        if kind == "int" and text[-1] in "uU":
            raise self.mistake(
                f"unsigned numbers such as {text} are not part of the language",
                maybe=f"{text[:-1][:24]} is meant.",
            )
        if follows.isalnum() or follows == "_":
            raise self.mistake(
                f"{text!r} runs into {follows!r}", maybe='quantity("64Gi") or the like is meant.'
            )
        self.advance()
        span = self.since(at if sign is None else sign)
        if kind == "double":
            number = float(text)
            if number == inf:
                raise self.mistake(
                    f"{text[:24]} is larger than any double", span, maybe="1e308 or less is meant."
                )
            if sign is not None and number == 0:  # equal to 0.0, so the sign stays an operator
                return Unary("-", Literal("double", number, span=span), span=span)
            return Literal("double", number if sign is None else -number, span=span)
        if len(text) > 24:  # int() of very long texts is slow, and refuses in words of its own
            raise self.mistake("this whole number does not fit into 64 bits", span, maybe=_WHOLE)
        whole = int(text, 16) if text[:2] in ("0x", "0X") else int(text)
        whole = whole if sign is None else -whole
        if not INT_MIN <= whole <= INT_MAX:
            raise self.mistake(f"{whole} does not fit into 64 bits", span, maybe=_WHOLE)
        return Literal("int", whole, span=span)

    def string(self) -> Expr:
        """Read a string with its escapes, or a raw one without."""
        first, start = self.at, self.starts[self.at]
        try:
            text = string_value(self.tokens[first])
        except BadString as bad:
            span = self.span(start + bad.start, start + bad.end)
            raise self.mistake(bad.message, span, maybe=bad.maybe) from None
        self.advance()
        return Literal("string", text, span=self.since(first))
