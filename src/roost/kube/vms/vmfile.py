"""Files of VMs: a YAML list of what is asked for, in roost's words.

- {name: web, count: 3, cpu: 4, memory: 8GiB, groups: [web anti-affinity host]}
- {name: db, cpu: 8, memory: 32GiB, zones: [a, b], dirty_rate_mbps: 4000}
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from roost.base.errors import InvalidRequest
from roost.base.units import parse_cpu
from roost.kube.base.quantities import parse_quantity
from roost.kube.vms.spec import VM, Group, Ratio, parse_group
from roost.wire.text.strictyaml import parse_strictly, read_text


class Cores(int):
    """Millicores; in files cores (4, 0.5) or millicores (250m)."""


class Memory(int):
    """Bytes; in files such as 4GiB or 4Gi."""


def _cores(value: Any) -> Cores:
    try:
        return Cores(parse_cpu(str(value)))
    except InvalidRequest as error:
        raise ValueError(error.message) from error


def _memory(value: Any) -> Memory:
    try:
        return Memory(parse_quantity(str(value)))
    except InvalidRequest as error:
        raise ValueError(error.message) from error


def _group(value: Any) -> Group:
    try:
        return parse_group(str(value))
    except InvalidRequest as error:
        raise ValueError(error.message) from error


class GroupWords(str):
    """A group as people write it: NAME RULE [SCOPE] [soft] [max-skew=N]."""

    __slots__ = ()


def _group_words(value: Any) -> GroupWords:
    _group(value)
    return GroupWords(value)


#: How values of these types are read, for documents that hold such VMs.
READERS = {Cores: _cores, Memory: _memory, GroupWords: _group_words}


class WrittenVM(Struct, kw_only=True, forbid_unknown_fields=True):
    """One VM, or several equal ones, as a file has it."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    cpu: Cores
    memory: Memory
    count: Annotated[int, Meta(ge=1, le=100_000)] = 1  # more than one: NAME-1, NAME-2, ...
    cpu_utilization: Ratio = 0.5
    memory_utilization: Ratio = 0.8
    dirty_rate_mbps: Annotated[float, Meta(ge=0)] = 800.0
    running: bool = True
    zones: tuple[str, ...] = ()
    node_labels: dict[str, str] = {}
    groups: tuple[GroupWords, ...] = ()
    node: str = ""

    def vms(self, namespace: str) -> list[VM]:
        """Return what it asks for."""
        names = [self.name]
        if self.count > 1:
            names = [f"{self.name}-{number}" for number in range(1, self.count + 1)]
        return [
            VM(
                name=name,
                namespace=namespace,
                cpu_milli=int(self.cpu),
                memory_bytes=int(self.memory),
                cpu_utilization=self.cpu_utilization,
                memory_utilization=self.memory_utilization,
                dirty_rate_mbps=self.dirty_rate_mbps,
                running=self.running,
                zones=self.zones,
                node_labels=self.node_labels,
                groups=tuple(map(parse_group, self.groups)),
                node=self.node,
            )
            for name in names
        ]


def read_vms(path: Path, namespace: str) -> list[VM]:
    """Return the VMs of a file."""
    return parse_vms(read_text(path), namespace, str(path))


def parse_vms(text: str, namespace: str, file: str = "the list") -> list[VM]:
    """Return the VMs of a text."""
    written: Sequence[WrittenVM] = parse_strictly(text, file, list[WrittenVM], READERS)
    try:
        return [vm for each in written for vm in each.vms(namespace)]
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidRequest(f"{file}: {error}") from error
