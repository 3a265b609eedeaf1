"""Kinds of typical requests as text, for the ledger and for who asks what is kept room for."""

from collections.abc import Iterable

import msgspec

from roost.placement.mix import TypicalRequest

_encoder = msgspec.json.Encoder(order="deterministic")
_kind = msgspec.json.Decoder(TypicalRequest)
_kinds = msgspec.json.Decoder(list[TypicalRequest])


def kind_text(kind: TypicalRequest) -> str:
    """Write a kind as JSON: the same text for the same kind."""
    return _encoder.encode(kind).decode()


def read_kind(text: str) -> TypicalRequest:
    """Read a kind that was written by `kind_text`."""
    return _kind.decode(text)


def kinds_text(kinds: Iterable[TypicalRequest]) -> str:
    """Write the kinds of a mix as JSON."""
    return _encoder.encode(list(kinds)).decode()


def read_kinds(text: str) -> list[TypicalRequest]:
    """Read kinds that were written by `kinds_text`."""
    return _kinds.decode(text)
