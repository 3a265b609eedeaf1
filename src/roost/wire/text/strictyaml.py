"""YAML files that people write, read strictly: every mistake is told as FILE:LINE and what it is.

A file becomes a msgspec struct. A field that nobody knows, a field that is there twice and a value
of the wrong kind are refused, because what is misspelt would otherwise silently not happen.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from roost.base.errors import InvalidRequest, NotFound
from roost.base.units import parse_bytes

T = TypeVar("T")
#: How values of a type of one's own are read; a ValueError says what is wrong with one.
Readers = Mapping[type, Callable[[Any], Any]]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
#: How msgspec tells where in a document something is wrong.
_AT = " - at "
_BOOL = "tag:yaml.org,2002:bool"


class Seconds(float):
    """A length of time; in files a number of seconds, or such as 90s, 20m, 4h, 7d."""


class Size(str):
    """An amount of memory or disk, such as 4GiB."""

    __slots__ = ()


def read_seconds(value: Any) -> Seconds:
    """Return the length of time that a file means."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return Seconds(value)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|[smhd])\s*", str(value))
    if match is None:
        raise ValueError(f"{value!r} is no length of time; write it as 90s, 20m, 4h or 7d")
    return Seconds(float(match[1]) * _UNITS[match[2]])


def read_size(value: Any) -> Size:
    """Return the amount of bytes that a file means."""
    try:
        parse_bytes(value)
    except (InvalidRequest, TypeError, AttributeError) as error:
        raise ValueError(f"{value!r} is no amount of bytes; write it as 4GiB") from error
    return Size(value)


_READERS: Readers = {Seconds: read_seconds, Size: read_size}


class _Loader(yaml.SafeLoader):
    """Reads `on`, `off`, `yes` and `no` as the words they are: `on` is a field of many actions.

    A field that is there twice is a mistake.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                said = f"the field `{key.value}` is there twice"
                raise yaml.MarkedYAMLError(problem=said, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [found for found in resolvers if first in "tTfF" or found[0] != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str) -> Any:
    """Return what a YAML text holds."""
    return yaml.load(text, Loader=_Loader)


def read_text(path: Path) -> str:
    """Return what a file holds."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest(f"cannot read {path}: {why}") from error


def located(message: str, path: str) -> str:
    """Return a message for a ValueError of the whole document that means one place in it."""
    return f"{message}{_AT}`{path}`"


def parse_strictly(text: str, file: str, kind: type[T], readers: Readers | None = None) -> T:
    """Turn a text into one kind of document; `file` is how errors call it."""
    known = {**_READERS, **(readers or {})}

    def read_value(wanted: type, value: Any) -> Any:
        return known[wanted](value)

    try:
        return msgspec.convert(read_yaml(text), kind, dec_hook=read_value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{file}:{mark.line + 1}" if mark is not None else file
        raise InvalidRequest(f"{at}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{file}: {error}") from error
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(_AT)
        line, words = _line_of(text, where.strip("`"), said)
        raise InvalidRequest(f"{file}:{line}: {said[0].lower()}{said[1:]}{words}") from error


def find_file(name: str, shipped: Mapping[str, Path], what: str) -> Path:
    """Return the file of what is named: one that is shipped, or else a path."""
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json") and path.exists():
        return path
    raise NotFound(
        f"no {what} {name!r}; shipped are {', '.join(shipped)}",
        hint="Maybe a file with the ending .yaml.",
    )


def _line_of(text: str, path: str, said: str) -> tuple[int, str]:
    """Return the line that a path such as $.arrivals[0].batch means, and the path in words."""
    node = yaml.compose(text, Loader=_Loader)
    steps = re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", path)
    unknown = re.search(r"unknown field `([^`]+)`", said)
    if unknown is not None:
        steps.append((unknown[1], ""))
    line = 1
    for key, index in steps:
        if isinstance(node, yaml.SequenceNode) and index:
            node = node.value[int(index)]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode) and key:
            found = [pair for pair in node.value if pair[0].value == key]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
    shown = path.removeprefix("$").removeprefix(".")
    return line, f", at {shown}" if shown and "key" not in shown else ""
