"""Messages as an attacker would write them, through every decoder of the agents' protocol.

    python -m tests.fuzz [--messages N] [--seed N]

A message begins as a valid one, drawn from the types, and is then bent: values at and beyond their
bounds, other types, fields lost, repeated and invented, bytes changed, cut and doubled.
"""

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, get_args

import msgspec
from msgspec import inspect

from roost.wire.agentlink import FromAgent, ToAgent, decode_to_agent, take_from_agent

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**48, 2**48 + 1, 2**53, 2**62, 2**63, 2**64, 2**70, -(2**63),
    0.5, -0.0, 1e308, "", "x", "x" * 129, "x" * 9000, "\x00", "a\nb", "\u202e", "é" * 200, "😀",
    [], {}, [[]], {"": {}}, "vm-1", "h0", "running", "gone", "hello",
)  # fmt: skip
MESSAGES: tuple[type, ...] = (*get_args(FromAgent), *get_args(ToAgent))


def draw(kind: inspect.Type, random: Random) -> Any:
    """Return a value of a type, at random and mostly valid."""
    match kind:
        case inspect.UnionType():
            return draw(random.choice(kind.types), random)
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return random.random() < 0.5
        case inspect.LiteralType():
            return random.choice(kind.values)
        case inspect.IntType():
            least, most = kind.ge or 0, kind.le or 100
            return random.choice((least, most, random.randint(int(least), int(most)), 1, 2))
        case inspect.FloatType():
            return random.choice((0.0, 1.5, kind.le or 1.0))
        case inspect.StrType():
            return random.choice(("x", "vm-1", "h0", "y" * random.randrange(1, 60)))
        case inspect.ListType():
            return [draw(kind.item_type, random) for _ in range(random.randrange(3))]
        case inspect.DictType():
            keys = [f"k{n}" for n in range(random.randrange(3))]
            return {key: draw(kind.value_type, random) for key in keys}
        case inspect.StructType():
            found = {each.encode_name: draw(each.type, random) for each in kind.fields}
            return found | ({kind.tag_field: kind.tag} if kind.tag_field else {})
    return random.choice(ODD)


def bend(value: Any, random: Random) -> Any:
    """Return a value with one thing in it changed into something odd."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        match random.randrange(6):
            case 0:
                del value[key]
            case 1:
                value[random.choice(("type", "?", key + key))] = value[key]
            case _:
                value[key] = bend(value[key], random)
        return value
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        if random.random() < 0.2:
            return value * random.choice((0, 2, 70))
        value[at] = bend(value[at], random)
        return value
    return copy.deepcopy(random.choice(ODD))


def spoil(data: bytes, random: Random) -> bytes:
    """Return bytes with a few of them changed, cut out or doubled."""
    at, end = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
    match random.randrange(6):
        case 0:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:end] + data[at:]
        case 4:
            return (
                data[:at] + random.choice((b"[", b'{"a":')) * random.choice((10, 5000)) + data[at:]
            )
    return random.randbytes(random.randrange(40))


class Writer:
    """Writes messages, one after the other."""

    def __init__(self, random: Random, kinds: tuple[type, ...] = MESSAGES) -> None:
        self._random = random
        self._kinds = [inspect.type_info(kind) for kind in kinds]

    def write(self) -> bytes:
        """Return one message: valid, bent or no message at all."""
        random = self._random
        said = draw(random.choice(self._kinds), random)
        for _ in range(random.choice((0, 1, 1, 2, 5))):
            said = bend(said, random)
        data = json.dumps(said, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
        return spoil(data, random) if random.random() < 0.3 else data


@dataclass
class Tally:
    """What became of the messages."""

    messages: int = 0
    read: int = 0
    refused: int = 0
    left_out: int = 0  # entries of lists
    kinds: dict[str, int] = field(default_factory=dict)


def fuzz_decoders(seed: int, count: int, said: Callable[[Tally], None] | None = None) -> Tally:
    """Send messages through both decoders; whatever is no error of decoding is raised."""
    writer, tally = Writer(Random(seed)), Tally()
    while tally.messages < count:
        data = writer.write()
        tally.messages += 1
        try:
            taken = take_from_agent(data)
            tally.left_out += taken.left_out
            name = type(taken.message).__name__
            tally.kinds[name] = tally.kinds.get(name, 0) + 1
            tally.read += 1
        except msgspec.DecodeError:
            tally.refused += 1
        with suppress(msgspec.DecodeError):
            decode_to_agent(data)
        if said is not None and tally.messages % 50_000 == 0:
            said(tally)
    return tally
