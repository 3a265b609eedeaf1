"""Read protocol buffer text files without their schema: messages as dicts of lists."""

import re
from typing import Any

_TOKEN = re.compile(
    r"""(?: \s+ | \#[^\n]* )* (?: (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
        | (?P<open> \{ | < ) | (?P<close> \} | > ) | (?P<colon> : ) | (?P<comma> [,;] )
        | (?P<left> \[ ) | (?P<right> \] ) | (?P<word> [^\s{}<>:;,\[\]"']+ ) )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

Message = dict[str, list[Any]]


def read(text: str) -> Message:
    """Return the message of a file."""
    tokens = [
        (match.lastgroup or "", match[match.lastgroup])
        for match in _TOKEN.finditer(text)
        if match.lastgroup
    ]
    tokens.append(("close", ""))
    message, at = _message(tokens, 0)
    assert at == len(tokens), f"token {at} of {len(tokens)} was not read"
    return message


def _message(tokens: list[tuple[str, str]], at: int) -> tuple[Message, int]:
    found: Message = {}
    while tokens[at][0] != "close":
        kind, name = tokens[at]
        if kind == "comma":
            at += 1
            continue
        if kind == "left":  # an Any: [type.googleapis.com/...] { ... }
            end = next(n for n in range(at, len(tokens)) if tokens[n][0] == "right")
            name, at = "".join(word for _, word in tokens[at : end + 1]), end
        at += 1
        if tokens[at][0] == "colon":
            at += 1
        value, at = _value(tokens, at)
        found.setdefault(name, []).extend(value)
    return found, at + 1


def _value(tokens: list[tuple[str, str]], at: int) -> tuple[list[Any], int]:
    kind, text = tokens[at]
    if kind == "open":
        message, at = _message(tokens, at + 1)
        return [message], at
    if kind == "left":
        items: list[Any] = []
        at += 1
        while tokens[at][0] != "right":
            if tokens[at][0] == "comma":
                at += 1
                continue
            more, at = _value(tokens, at)
            items.extend(more)
        return items, at + 1
    if kind == "string":
        whole = b""
        while tokens[at][0] == "string":
            whole += _unescaped(tokens[at][1][1:-1])
            at += 1
        return [whole.decode("utf-8", "replace")], at
    return [text], at + 1


def _unescaped(text: str) -> bytes:
    found = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\":
            found += text[at].encode()
            at += 1
            continue
        octal = re.compile(r"[0-7]{1,3}").match(text, at + 1)
        point = re.compile(r"x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})").match(
            text, at + 1
        )
        if octal:
            found.append(int(octal[0], 8))
            at = octal.end()
        elif point and point[1]:
            found.append(int(point[1], 16))
            at = point.end()
        elif point:
            found += chr(int(point[2] or point[3], 16)).encode()
            at = point.end()
        else:
            found += _ESCAPES.get(text[at + 1], text[at + 1]).encode()
            at += 2
    return bytes(found)
