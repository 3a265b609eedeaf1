"""Cut the text of a rule into tokens, and read the strings among them.

One regular expression finds the next token; the first character that begins none ends the scan,
and the parser says so when it gets there. Nothing here knows the grammar.
"""

import re

#: A token, and the blanks and comments before it.
_TOKEN = re.compile(
    r"""
    (?: [ \t\r\n\f]+ | //[^\n]* )*+
    (?:
      (?P<string> (?: [bB]?[rR] | [rR][bB] )
                  (?: \"\"\".*?\"\"\" | '''.*?''' | "[^"\r\n]*" | '[^'\r\n]*' )
                | [bB]?
                  (?: \"\"\"(?:[^\\]|\\.)*?\"\"\" | '''(?:[^\\]|\\.)*?'''
                    | "(?:[^"\\\r\n]|\\.)*" | '(?:[^'\\\r\n]|\\.)*' ) )
    | (?P<double> [0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<int>    0[xX][0-9a-fA-F]+[uU]? | [0-9]+[uU]? )
    | (?P<word>   [A-Za-z_][A-Za-z0-9_]* )
    | (?P<mark>   && | \|\| | == | != | <= | >= | [-+*/%<>!?:.,()\[\]{}] )
    | (?P<end>    \Z )
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_BLANKS = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)*+")
_KEYWORDS = frozenset(("true", "false", "null", "in"))

_ESCAPE = re.compile(
    r"""\\(?: ([abfnrtv\\?"'`]) | [xX]([0-9a-fA-F]{2}) | u([0-9a-fA-F]{4})
          | U([0-9a-fA-F]{8}) | ([0-3][0-7]{2}) | (.) | $ )""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))


class BadString(Exception):
    """A string cannot be read; `start` and `end` are characters of its token."""

    def __init__(self, message: str, start: int, end: int, maybe: str) -> None:
        super().__init__(message)
        self.message, self.start, self.end, self.maybe = message, start, end, maybe


def scan(text: str) -> tuple[list[str], list[str], list[int]]:
    """Return kind, text and start of every token.

    The kind of a mark, and of a word with a meaning of its own, is itself; other kinds are `word`,
    `int`, `double` and `string`. The last token is `end`, or `unreadable` where scanning stopped.
    """
    kinds: list[str] = []
    tokens: list[str] = []
    starts: list[int] = []
    position, last = 0, "unreadable"
    scanner = _TOKEN.scanner(text)  # type: ignore[attr-defined]
    while (match := scanner.match()) is not None:
        kind = match.lastgroup
        token, position = match[kind], match.end()
        if kind == "end":
            last = kind
            break
        kinds.append(token if kind == "mark" or token in _KEYWORDS else kind)
        tokens.append(token)
        starts.append(position - len(token))
    kinds.append(last)
    tokens.append("")
    blanks = _BLANKS.match(text, position)
    starts.append(position if blanks is None else blanks.end())
    return kinds, tokens, starts


def string_value(token: str) -> str:
    """Return the text that a string token stands for."""
    opening = token.find(token[-1])
    prefix, body = token[:opening].lower(), token[opening:]
    if "b" in prefix:
        message = "strings of bytes are not part of the language"
        raise BadString(message, 0, len(token), "the same text without the b is meant.")
    quote = 3 if len(body) >= 6 and body[:3] in ('"""', "'''") else 1
    body = body[quote:-quote]
    return body if prefix or "\\" not in body else _unescaped(body, opening + quote)


def _unescaped(body: str, offset: int) -> str:
    def replace(match: re.Match[str]) -> str:
        simple, x2, u4, u8, octal, _ = match.groups()
        if simple:
            return _SIMPLE[simple]
        number = x2 or u4 or u8
        point = int(number, 16) if number else int(octal, 8) if octal else -1
        if not 0 <= point <= 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise BadString(
                f"{match[0]!r} is no escape of the language",
                offset + match.start(),
                offset + match.end(),
                'a raw string is meant: r"...".',
            )
        return chr(point)

    return _ESCAPE.sub(replace, body)
