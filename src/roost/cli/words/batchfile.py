"""A file of VMs to create: JSON, YAML, or one VM a line in the words of a fleet file.

    web-1 cpu=2 memory=4GiB disk=20GiB group="web anti-affinity"

JSON and YAML hold a list of VMs as `POST /vms` takes them, or {vms: [...], atomic: true}.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import InvalidRequest, NotFound, RoostError
from roost.cli.words.asking import vm_fields
from roost.wire.bodies import OWN_PROJECT, CreateVM, CreateVMs
from roost.wire.text.requestwords import parse_line


def read_batch(path: str, project: str | None = None) -> CreateVMs:
    """Return the VMs of a file, or of standard input; those without a project get this one."""
    found = _batch(path)
    for vm in found.vms:
        vm.project = vm.project or project or OWN_PROJECT
    return found


def _batch(path: str) -> CreateVMs:
    text = _read(path)
    begins = text.lstrip()[:1]
    if path.endswith((".yaml", ".yml")):
        return _from_document(_parse_yaml(text, path), path)
    if path.endswith(".json") or begins in ("{", "["):
        return _from_document(_parse_json(text, path), path)
    return CreateVMs(vms=list(_from_lines(text, path)))


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise NotFound(f"cannot read {path!r}: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: {error}", file=path) from error


def _parse_json(text: str, path: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{path}: {error}", file=path) from error


def _parse_yaml(text: str, path: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{path}: {error}", file=path) from error


def _from_document(found: Any, path: str) -> CreateVMs:
    try:
        asked = msgspec.convert({"vms": found} if isinstance(found, list) else found, CreateVMs)
    except msgspec.ValidationError as error:
        raise InvalidRequest(
            f"{path}: {error}",
            hint='Maybe [{"name": "web-1", "demand": {"cpu": 2, "memory": "4GiB"}}]?',
            file=path,
        ) from error
    for vm in asked.vms:
        if vm.demand is None and vm.flavor is None:
            raise InvalidRequest(
                f"{path}: VM {vm.name!r} says neither its demand nor a flavor",
                hint='Maybe "demand": {"cpu": 2, "memory": "4GiB"}?',
                file=path,
            )
    return asked


def _from_lines(text: str, path: str) -> list[CreateVM]:
    vms: list[CreateVM] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            vms.append(CreateVM(**vm_fields(parse_line(line))))
        except RoostError as error:
            message = f"{path}:{number}: {error.message}"
            raise InvalidRequest(message, hint=error.hint, file=path, line=number) from error
    if not vms:
        raise InvalidRequest(
            f"{path} names no VM", hint="Maybe a line such as: web-1 cpu=2 memory=4GiB"
        )
    return vms
