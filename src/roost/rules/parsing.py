"""Parse the text of a rule into its tree.

A scanner of one regular expression and a parser by operator precedence (ADR-0026 says why it is
written by hand). The grammar is CEL's without messages, bytes, unsigned numbers and optional
syntax. Every refusal is a `RuleError` with its position; whatever the text, parsing takes time in
proportion to its length and never exhausts the stack.
"""

import re

from roost.base.errors import RuleError
from roost.rules.mistakes import mistake
from roost.rules.positions import Span, span_of
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
_WORDS = {"true": ("bool", True), "false": ("bool", False), "null": ("null", None)}

_TOKEN = re.compile(
    r"""
      (?P<space>  (?: [ \t\r\n\f] | //[^\n]* )+ )
    | (?P<string> [rRbB]{0,2} (?: \"\"\"(?:[^\\]|\\.)*?\"\"\" | '''(?:[^\\]|\\.)*?'''
                                | "(?:[^"\\\r\n]|\\.)*" | '(?:[^'\\\r\n]|\\.)*' ) )
    | (?P<double> [0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<int>    0[xX][0-9a-fA-F]+[uU]? | [0-9]+[uU]? )
    | (?P<word>   [A-Za-z_][A-Za-z0-9_]* )
    | (?P<mark>   && | \|\| | == | != | <= | >= | [-+*/%<>!?:.,()\[\]{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_RAW = re.compile(
    r"""[rR] (?: \"\"\".*?\"\"\" | '''.*?''' | "[^"\r\n]*" | '[^'\r\n]*' )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"""\\(?: ([abfnrtv\\?"'`]) | [xX]([0-9a-fA-F]{2}) | u([0-9a-fA-F]{4})
          | U([0-9a-fA-F]{8}) | ([0-3][0-7]{2}) | (.) | $ )""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))

_RELATIONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in"))
_PRECEDENCE = {
    **dict.fromkeys(_RELATIONS, 1),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
}

#: What people of other languages write, and what it is called here.
_FOREIGN = {"and": "&&", "or": "||", "not": "!", "&": "&&", "|": "||", "=": "=="}


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
    return _Parser(text).whole()


def depth(expr: Expr) -> int:
    """Return how many levels a tree has, without recursion."""
    deepest, level = 0, [expr]
    while level:
        deepest += 1
        level = [child for node in level for child in children(node)]
    return deepest


class _Parser:
    """One text on its way to a tree; `kind`, `token` and `at` describe the token in hand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kind, self.token = "", ""
        self.at = self.end = 0  # of the token in hand
        self.before = 0  # where the token before it ended
        self.line, self.line_start = 1, 0
        self.nesting = 0
        self.advance()

    # ----------------------------------------------------------------------------- scanning

    def advance(self) -> None:
        """Take the next token in hand; the last one has the kind `end`."""
        text, position = self.text, self.end
        self.before = position
        while True:
            match = _TOKEN.match(text, position)
            if match is None:
                self.at = position
                if position == len(text):
                    self.kind, self.token, self.end = "end", "", position
                    return
                raise self.unreadable(position)
            kind = match.lastgroup
            if kind == "space":
                lines = text.count("\n", position, match.end())
                if lines:
                    self.line += lines
                    self.line_start = text.rfind("\n", position, match.end()) + 1
                position = match.end()
                continue
            if kind == "string" and text[position] in "rR":
                match = _RAW.match(text, position) or match
            assert kind is not None
            self.kind, self.token = kind, match[0]
            self.at, self.end = position, match.end()
            return

    def unreadable(self, position: int) -> RuleError:
        """Build the error of a character with which no token begins."""
        char = self.text[position]
        here = span_of(self.text, position, position + 1)
        if char in "\"'":
            return mistake(self.text, here, f"the string that begins here has no closing {char}")
        foreign = _FOREIGN.get(char)
        return mistake(
            self.text,
            here,
            f"{char!r} is not part of the language",
            maybe=None if foreign is None else f"{foreign} is meant.",
        )

    def here(self) -> Span:
        """Return the span of the token in hand."""
        return Span(self.line, self.at - self.line_start + 1, self.at, max(self.end, self.at + 1))

    def since(self, first: Span) -> Span:
        """Return the span from there to the token before the one in hand."""
        return Span(first.line, first.column, first.start, self.before)

    def mistake(
        self, message: str, span: Span | None = None, maybe: str | None = None
    ) -> RuleError:
        """Build the error of a mistake at the token in hand, or at the span."""
        return mistake(self.text, span or self.here(), message, maybe=maybe)

    def found(self) -> str:
        """Say what the token in hand is."""
        return "the rule ends" if self.kind == "end" else f"{self.token!r} stands here"

    def expect(self, mark: str, opening: Span, opened: str) -> None:
        """Take the mark that closes what was opened, or refuse."""
        if self.token != mark or self.kind != "mark":
            raise self.mistake(
                f"{mark!r} is missing for the {opened!r} of line {opening.line}, column "
                f"{opening.column}: {self.found()}"
            )
        self.advance()

    # ------------------------------------------------------------------------------ grammar

    def whole(self) -> Expr:
        """Read the text to its end."""
        if self.kind == "end":
            raise self.mistake("the rule is empty", maybe='host.zone == "a" or the like is meant.')
        expr = self.expression()
        if self.kind != "end":
            foreign = _FOREIGN.get(self.token)
            raise self.mistake(
                f"the rule could end before {self.token!r}, and this does not continue it",
                maybe=None if foreign is None else f"{foreign} is meant.",
            )
        if depth(expr) > MAX_DEPTH:
            raise self.too_deep(span_of(self.text, 0, 1))
        return expr

    def too_deep(self, span: Span) -> RuleError:
        """Build the error of what is nested too deep."""
        return self.mistake(f"the rule is nested more than {MAX_DEPTH} levels deep", span)

    def expression(self) -> Expr:
        """Read `a ? b : c`, or what binds tighter."""
        self.nesting += 1
        if self.nesting > MAX_DEPTH:
            raise self.too_deep(self.here())
        first = self.here()
        expr = self.logical("||")
        if self.token == "?" and self.kind == "mark":
            mark = self.here()
            self.advance()
            then = self.logical("||")
            if self.token != ":" or self.kind != "mark":
                raise self.mistake(
                    f"':' is missing for the '?' of line {mark.line}, column {mark.column}: "
                    f"{self.found()}"
                )
            self.advance()
            otherwise = self.expression()
            expr = Conditional(expr, then, otherwise, span=self.since(first))
        self.nesting -= 1
        return expr

    def logical(self, operator: str) -> Expr:
        """Read a chain of `||` over chains of `&&` over relations."""
        first = self.here()
        expr = self.logical("&&") if operator == "||" else self.binary(1)
        if self.token != operator or self.kind != "mark":
            return expr
        terms: list[Expr] = []
        while True:
            if isinstance(expr, Logical) and expr.operator == operator:
                terms.extend(expr.terms)
            else:
                terms.append(expr)
            if self.token != operator or self.kind != "mark":
                return Logical(operator, tuple(terms), span=self.since(first))
            self.advance()
            expr = self.logical("&&") if operator == "||" else self.binary(1)

    def binary(self, level: int) -> Expr:
        """Read operators of at least this precedence, from left to right."""
        first = self.here()
        expr = self.unary()
        while self.kind == "mark" or self.token == "in":
            operator = self.token
            precedence = _PRECEDENCE.get(operator, 0)
            if precedence < level:
                return expr
            self.advance()
            right = self.binary(precedence + 1)
            expr = Binary(operator, expr, right, span=self.since(first))
        return expr

    def unary(self) -> Expr:
        """Read `!` or `-` before a member; an even number of them cancels out."""
        if self.kind != "mark" or self.token not in "!-":
            return self.member()
        first, operator, odd = self.here(), self.token, False
        while self.kind == "mark" and self.token == operator:
            odd = not odd
            self.advance()
        if operator == "-" and odd and self.kind in ("int", "double"):
            # The sign belongs to the number: -9223372036854775808 has no positive twin.
            return self.member(negative=first)
        operand = self.member()
        return Unary(operator, operand, span=self.since(first)) if odd else operand

    def member(self, negative: Span | None = None) -> Expr:
        """Read what stands alone, and the dots, brackets and calls behind it."""
        first = self.here() if negative is None else negative
        expr = self.number(negative) if negative is not None else self.primary()
        while self.kind == "mark":
            if self.token == ".":
                self.advance()
                expr = self.selection(expr, first)
            elif self.token == "[":
                opening = self.here()
                self.advance()
                index = self.expression()
                self.expect("]", opening, "[")
                expr = Index(expr, index, span=self.since(first))
            else:
                break
        return expr

    def selection(self, operand: Expr, first: Span) -> Expr:
        """Read the name behind a dot, and its arguments if it is called."""
        if self.kind != "word" or self.token in _WORDS or self.token == "in":
            raise self.mistake(f"a field's name is missing behind the dot: {self.found()}")
        name, at = self.token, self.here()
        self.advance()
        if self.token != "(" or self.kind != "mark":
            return Select(operand, name, span=self.since(first))
        if name in MACROS:
            return self.macro(name, operand, first, at)
        arguments = self.arguments()
        return Call(name, operand, arguments, span=self.since(first))

    def arguments(self) -> tuple[Expr, ...]:
        """Read the arguments of a call, brackets included."""
        opening = self.here()
        self.advance()
        if self.kind == "mark" and self.token == ")":
            self.advance()
            return ()
        return tuple(self.items(")", opening, "(", trailing=False))

    def items(self, closing: str, opening: Span, opened: str, *, trailing: bool) -> list[Expr]:
        """Read expressions between commas up to the closing mark."""
        found: list[Expr] = []
        while True:
            if trailing and self.kind == "mark" and self.token == closing:
                break
            if len(found) == MAX_ITEMS:
                raise self.mistake(f"more than {MAX_ITEMS} items in one place", opening)
            found.append(self.expression())
            if self.kind != "mark" or self.token != ",":
                break
            self.advance()
        self.expect(closing, opening, opened)
        return found

    def macro(self, name: str, over: Expr, first: Span, at: Span) -> Expr:
        """Read the arguments of a macro, whose first one is a variable's name."""
        arguments = self.arguments()
        span = self.since(first)
        if len(arguments) not in MACROS[name]:
            counts = " or ".join(str(count) for count in MACROS[name])
            raise self.mistake(
                f"{name}() takes {counts} arguments, not {len(arguments)}",
                at,
                f"x.{name}(item, item > 0) or the like is meant.",
            )
        variable, *rest = arguments
        if not isinstance(variable, Ident):
            raise self.mistake(
                f"the first argument of {name}() is the name of a new variable",
                variable.span,
                f"x.{name}(item, ...) is meant.",
            )
        if name == "map":
            predicate = rest[0] if len(rest) == 2 else None
            return Macro(name, over, variable.name, predicate, rest[-1], span=span)
        return Macro(name, over, variable.name, rest[0], span=span)

    def primary(self) -> Expr:
        """Read a literal, a name, a call, a list, a map, or something in brackets."""
        match self.kind:
            case "word":
                return self.name()
            case "int" | "double":
                return self.number()
            case "string":
                return self.string()
        opening = self.here()
        if self.kind == "mark" and self.token == "(":
            self.advance()
            expr = self.expression()
            self.expect(")", opening, "(")
            return expr
        if self.kind == "mark" and self.token == "[":
            self.advance()
            items = self.items("]", opening, "[", trailing=True)
            return ListOf(tuple(items), span=self.since(opening))
        if self.kind == "mark" and self.token == "{":
            return self.map(opening)
        raise self.mistake(f"a value is missing here: {self.found()}")

    def map(self, opening: Span) -> Expr:
        """Read `{key: value, ...}`."""
        self.advance()
        entries: list[tuple[Expr, Expr]] = []
        while self.token != "}" or self.kind != "mark":
            if len(entries) == MAX_ITEMS:
                raise self.mistake(f"more than {MAX_ITEMS} items in one place", opening)
            key = self.expression()
            if self.token != ":" or self.kind != "mark":
                raise self.mistake(f"':' is missing behind the key: {self.found()}")
            self.advance()
            entries.append((key, self.expression()))
            if self.kind != "mark" or self.token != ",":
                break
            self.advance()
        self.expect("}", opening, "{")
        return MapOf(tuple(entries), span=self.since(opening))

    def name(self) -> Expr:
        """Read a name, a word with a meaning of its own, or a call."""
        word, span = self.token, self.here()
        self.advance()
        if word in _WORDS:
            kind, value = _WORDS[word]
            return Literal(kind, value, span=span)
        if word == "in" or word in _RESERVED:
            raise self.mistake(f"{word!r} is a reserved word", span)
        if self.token != "(" or self.kind != "mark":
            if word == "not":
                raise self.mistake("'not' is not part of the language", span, "! is meant.")
            return Ident(word, span=span)
        arguments = self.arguments()
        if word != "has":
            return Call(word, None, arguments, span=self.since(span))
        selected = arguments[0] if len(arguments) == 1 else None
        if not isinstance(selected, Select):
            raise self.mistake(
                "has() takes one field with its dot",
                span,
                "has(host.labels.gpu) or the like is meant.",
            )
        return Has(selected.operand, selected.field, span=self.since(span))

    def number(self, negative: Span | None = None) -> Expr:
        """Read a number; `negative` is the span of the sign before it."""
        text, kind = self.token, self.kind
        span = self.here()
        if negative is not None:
            span = Span(negative.line, negative.column, negative.start, span.end)
        follows = self.text[self.end : self.end + 1]
        if text[-1] in "uU" and kind == "int":
            raise self.mistake(f"unsigned numbers such as {text} are not part of the language")
        if follows.isalnum() or follows == "_":
            raise self.mistake(
                f"{text!r} runs into {follows!r}", maybe='quantity("64Gi") or the like is meant.'
            )
        self.advance()
        if kind == "double":
            number = float(text)
            if negative is None:
                return Literal("double", number, span=span)
            if number == 0:  # equal to its positive twin, so the sign stays an operator
                return Unary("-", Literal("double", number, span=span), span=span)
            return Literal("double", -number, span=span)
        if len(text) > 24:  # int() of very long texts is slow, and refuses in words of its own
            raise self.mistake("this whole number does not fit into 64 bits", span)
        whole = int(text, 16) if text[:2] in ("0x", "0X") else int(text)
        whole = whole if negative is None else -whole
        if not INT_MIN <= whole <= INT_MAX:
            raise self.mistake(f"{whole} does not fit into 64 bits", span)
        return Literal("int", whole, span=span)

    def string(self) -> Expr:
        """Read a string with its escapes, or a raw one without."""
        token, span = self.token, self.here()
        self.line += token.count("\n")
        if "\n" in token:
            self.line_start = self.at + token.rfind("\n") + 1
        opening = token.lower().find(token[-1])
        prefix, body = token[:opening].lower(), token[opening:]
        if "b" in prefix:
            raise self.mistake("strings of bytes are not part of the language", span)
        quote = 3 if body[:3] in ('"""', "'''") and len(body) >= 6 else 1
        body = body[quote:-quote]
        if not prefix and "\\" in body:
            body = self.unescaped(body, span, opening + quote)
        self.advance()
        return Literal("string", body, span=span)

    def unescaped(self, body: str, span: Span, offset: int) -> str:
        """Replace the escapes of a string."""

        def replace(match: re.Match[str]) -> str:
            simple, x2, u4, u8, octal, _ = match.groups()
            if simple:
                return _SIMPLE[simple]
            point = int(x2 or u4 or u8 or "0", 16) if not octal else int(octal, 8)
            wrong = not (x2 or u4 or u8 or octal)
            if wrong or point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
                start = span.start + offset + match.start()
                raise self.mistake(
                    f"{match[0]!r} is no escape of the language",
                    span_of(self.text, start, start + len(match[0])),
                    'a raw string is meant: r"...".',
                )
            return chr(point)

        return _ESCAPE.sub(replace, body)
