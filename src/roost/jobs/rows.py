"""Rows of jobs, pools and machines read as nouns of the model; stored specs are JSON of those.

A field that this release does not know is left out when it is read: a newer one may have written
it. Specs are kept by their text, since a thousand jobs share one.
"""

from functools import lru_cache
from typing import Any

import msgspec

from roost.base.errors import NotFound
from roost.model.job import JobSpec, MachineType, Pool

_encode = msgspec.json.Encoder().encode
_spec = msgspec.json.Decoder(JobSpec).decode
_pool = msgspec.json.Decoder(Pool).decode
_type = msgspec.json.Decoder(MachineType).decode


def stored(noun: JobSpec | Pool | MachineType) -> str:
    """Write a noun as it is kept."""
    return _encode(noun).decode()


@lru_cache(maxsize=4096)
def spec_of(text: str) -> JobSpec:
    """Read the spec of an array."""
    return _spec(text)


@lru_cache(maxsize=1024)
def pool_of(text: str) -> Pool:
    """Read what a pool is."""
    return _pool(text)


@lru_cache(maxsize=4096)
def type_of(text: str) -> MachineType:
    """Read the type of a machine."""
    return _type(text)


def parse_job(name: str) -> tuple[str, int | None]:
    """Return the array of a job's name, and its index if the name has one."""
    array, dot, index = name.partition(".")
    if not dot:
        return array, None
    if not (index.isascii() and index.isdigit() and len(index) <= 9):
        raise NotFound(f"there is no job {name!r}", job=name)
    return array, int(index)


def shown_name(array: str, index: int, size: int) -> str:
    """Return what people call a job: the index is left out where there is only one."""
    return array if size == 1 else f"{array}.{index}"


def plain(noun: object) -> dict[str, Any]:
    """Return a noun as plain values for an answer."""
    found: dict[str, Any] = msgspec.to_builtins(noun)
    return found
