"""Files of `roost apply`: what a fleet shall have, as YAML; a mistake is told by its place.

A document has the sections projects, flavors, hosts, groups and vms, each a list; a file may have
several documents, and a folder several files (*.yaml, *.yml, *.json).
"""

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from roost.api.complaints import in_words
from roost.base.errors import InvalidRequest, NotFound
from roost.wire.bodies import CreateProject, CreateVM, Request, SetHost
from roost.wire.flavors import CreateFlavor
from roost.wire.groups import CreateGroup

_AT = " - at "
_ENDINGS = (".yaml", ".yml", ".json")


class WantedHost(SetHost, kw_only=True):
    """A host by its name, and what is set about it; what is left out stays as it is."""

    name: str


class WantedFleet(Request):
    """What a file says that there shall be."""

    projects: list[CreateProject] = msgspec.field(default_factory=list)
    flavors: list[CreateFlavor] = msgspec.field(default_factory=list)
    hosts: list[WantedHost] = msgspec.field(default_factory=list)
    groups: list[CreateGroup] = msgspec.field(default_factory=list)
    vms: list[CreateVM] = msgspec.field(default_factory=list)


# The parser of libyaml reads 1,000 VMs in a tenth of the time; it is there in all usual builds.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]  # one of two classes
    """Refuses a field that is there twice: the first one would silently not happen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping."""
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen:
                    said = f"the field `{key.value}` is there twice"
                    raise yaml.MarkedYAMLError(problem=said, problem_mark=key.start_mark)
                seen.add(key.value)
        return found


def read_wanted(paths: Sequence[str]) -> WantedFleet:
    """Read files and folders into one; the same thing twice is refused."""
    whole = WantedFleet()
    seen: dict[tuple[str, str, str], str] = {}
    for name, text in _texts(paths):
        for part in _documents(text, name):
            for section in whole.__struct_fields__:
                for each in getattr(part, section):
                    key = (section, getattr(each, "project", ""), each.name)
                    if key in seen:
                        raise InvalidRequest(
                            f"{name}: {each.name!r} is among the {section} of {seen[key]} already"
                        )
                    seen[key] = name
                getattr(whole, section).extend(getattr(part, section))
    for vm in whole.vms:
        if (vm.demand is None) == (vm.flavor is None):
            raise InvalidRequest(
                f"VM {vm.name!r} of {seen['vms', vm.project, vm.name]} needs a demand or a flavor"
            )
    return whole


def _texts(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    for given in paths:
        if given == "-":
            yield "standard input", sys.stdin.read()
            continue
        path = Path(given)
        files = [path]
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix in _ENDINGS and p.is_file())
            if not files:
                raise NotFound(f"no file with the ending .yaml, .yml or .json in {given!r}")
        for file in files:
            try:
                yield str(file), file.read_text()
            except OSError as error:
                raise NotFound(f"cannot read {str(file)!r}: {error.strerror}") from error
            except UnicodeDecodeError as error:
                raise InvalidRequest(f"{file}: it is not UTF-8") from error


def _documents(text: str, name: str) -> Iterator[WantedFleet]:
    try:
        found = list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        raise InvalidRequest(f"{at}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{name}: {error}") from error
    for number, document in enumerate(found):
        if document is None:
            continue
        try:
            yield msgspec.convert(document, WantedFleet)
        except msgspec.ValidationError as error:
            raise _located(text, name, number, str(error)) from error


def _located(text: str, name: str, number: int, message: str) -> InvalidRequest:
    """Return a mistake with its file, line and column, and the field that was meant."""
    said, _, where = message.partition(_AT)
    node: Any = list(yaml.compose_all(text, Loader=_Loader))[number]
    steps = re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", where.strip("`"))
    unknown = re.search(r"unknown field `([^`]+)`", said)
    mark = node.start_mark
    kind: Any = WantedFleet
    for key, index in steps:
        kind = _below(kind, key)
        if index and isinstance(node, yaml.SequenceNode):
            node = node.value[int(index)]
            mark = node.start_mark
        elif key and isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == key), None)
            if pair is None:
                break
            mark, node = pair[0].start_mark, pair[1]
    hint = None
    if unknown is not None:
        for key, _ in getattr(node, "value", ()):
            if getattr(key, "value", None) == unknown[1]:
                mark = key.start_mark
        known = _fields(kind)
        hint = _meant(unknown[1], kind) or f"Maybe one of {', '.join(known)}."
        said = f"there is no field `{unknown[1]}` here"
    elif not steps and not isinstance(node, yaml.MappingNode):
        said, hint = "a file has sections, each a list", f"Maybe one of {', '.join(_fields(kind))}."
    else:
        said, hint = in_words(WantedFleet, said, where.strip("`"))
        if said.startswith("this is not ") and isinstance(node, yaml.ScalarNode):
            said = f"{node.value!r}{said.removeprefix('this')}"
    at = f"{name}:{mark.line + 1}:{mark.column + 1}"
    return InvalidRequest(f"{at}: {said[0].lower()}{said[1:]}", hint=hint, file=name)


def _meant(given: str, kind: Any) -> str | None:
    """Return what was meant by a field that is not there: one of the kind, or of what is in it."""
    known = _fields(kind)
    if close := difflib.get_close_matches(given, known, n=1):
        return f"Maybe `{close[0]}`?"
    for field in known:
        within = _fields(_below(kind, field))
        if close := difflib.get_close_matches(given, within, n=1, cutoff=0.75):
            return f"Maybe within `{field}`: `{field}: {{{close[0]}: ...}}`?"
    return None


def _below(kind: Any, key: str) -> Any:
    """Return the struct that a field of a struct holds, by itself or in a list or a union."""
    if not key or not _fields(kind):
        return kind
    field = next((f for f in msgspec.structs.fields(kind) if f.name == key), None)
    return None if field is None else _struct_in(field.type)


def _struct_in(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    found = (_struct_in(part) for part in getattr(kind, "__args__", ()))
    return next((each for each in found if each is not None), None)


def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(getattr(kind, "__struct_fields__", ()))
