"""Reading requests: bodies, queries, headers and names in paths, each refused with a clear error.

What cannot be read at all is `Malformed` (400): broken JSON, a wrong query. What can be read and is
not what the route takes is `InvalidRequest` (422).
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args
from urllib.parse import parse_qsl

import msgspec
import msgspec.inspect

from roost.api.answers import Receive
from roost.api.complaints import in_words
from roost.api.errors import Malformed
from roost.base.errors import InvalidRequest, NotFound, TooLarge
from roost.wire.bodies import Name

Query = TypeVar("Query")

#: Names and ids in paths. What does not look like one cannot exist.
NAME: str = get_args(Name)[1].pattern
#: Visible ASCII, so that a key is the same in every log, ledger and header.
KEY = r"^[!-~]{1,255}$"

_name = re.compile(NAME)
_key = re.compile(KEY.replace("$", r"\Z").encode())
_PLACE = re.compile(r"^(?P<what>.*) - at (?:`key` in )?`(?P<where>[^`]*)`$", re.DOTALL)


class RequestDecoder:
    """Decodes the bodies of one route."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, raw: bytes) -> Any:
        """Return the struct that the bytes mean."""
        try:
            decoded = self._decode(raw)
        except msgspec.DecodeError as error:
            raise refusal(raw, error, self._kind) from None
        except UnicodeDecodeError:
            raise Malformed("the body is not UTF-8") from None
        except RecursionError:
            raise Malformed("the body is nested too deep") from None
        if b"\\u0000" in raw:
            refuse_nul(raw)
        refuse_key_twice(raw)
        return decoded


def refusal(raw: bytes, error: msgspec.DecodeError, kind: Any) -> InvalidRequest:
    """Return the error for a body that was not understood."""
    if not raw:
        return Malformed("this needs a body, as JSON")
    if not isinstance(error, msgspec.ValidationError) or not _is_json(raw):
        return Malformed(f"the body is not JSON: {error}")
    what, where = _place(error)
    said, hint = in_words(kind, what, where)
    return InvalidRequest(
        f"the body is wrong at {where or '$'}: {said}", hint=hint, at=where or "$"
    )


def _place(error: msgspec.DecodeError) -> tuple[str, str]:
    """Return a decoder's complaint, and the field that it is about."""
    match = _PLACE.match(str(error))
    return (str(error), "") if match is None else (match["what"], match["where"])


def _is_json(raw: bytes) -> bool:
    # A wrong type may be noticed before the place where the JSON breaks off.
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def refuse_nul(raw: bytes) -> None:
    """Refuse the character NUL, which no ledger can store in a text."""
    if "\0" in _texts(msgspec.json.decode(raw)):
        raise InvalidRequest("the body has the character NUL in a text")


def refuse_key_twice(raw: bytes) -> None:
    """Refuse an object that has a key twice: two readers would not agree on what it says.

    Decoded and written again, such a body has a colon less for each; unless a colon that was
    written as an escape makes up for it. To look for the key itself costs ten times as much, so it
    is done only then.
    """
    written = msgspec.json.encode(msgspec.json.decode(raw))
    if b"\\u003" in raw or raw.count(b":") > written.count(b":"):
        try:
            json.loads(raw, object_pairs_hook=_refuse_twice, parse_int=str)
        except RecursionError:
            raise Malformed("the body is nested too deep") from None


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Malformed(f"the body has the key {key[:64]!r} twice in one object")
        seen.add(key)


def _texts(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_texts, value))
    if isinstance(value, dict):
        return "".join(value) + "".join(map(_texts, value.values()))
    return ""


async def read_body(length: bytes | None, receive: Receive, most: int) -> bytes:
    """Return the body, of at most so many bytes."""
    if length is not None and length.isdigit() and int(length) > most:
        raise _too_large(most)
    message = await receive()
    chunk: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(chunk) > most:
            raise _too_large(most)
        return chunk
    chunks, size = [chunk], len(chunk)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the body broke off")
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise _too_large(most)
    return b"".join(chunks)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than {most} bytes", most_bytes=most)


class QueryReader(Generic[Query]):
    """Reads the query strings of one route into its struct; lists are repeated names."""

    def __init__(self, kind: type[Query]) -> None:
        self._kind = kind
        self._lists = _fields(kind, msgspec.inspect.ListType)
        self._not_text = _fields(kind, msgspec.inspect.LiteralType) | _fields(
            kind, msgspec.inspect.IntType
        )

    def read(self, raw: bytes) -> Query:
        """Return the struct that a query string means."""
        try:
            return msgspec.convert(self._values(raw), self._kind, strict=False)
        except msgspec.ValidationError as error:
            what, where = _place(error)
            at = f" at {where.removeprefix('$.')}" if where else ""
            said, hint = in_words(self._kind, what, where)
            raise Malformed(f"the query is wrong{at}: {said}", hint=hint) from None

    def _values(self, raw: bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
        except ValueError:
            raise Malformed("the query is not URL-encoded UTF-8") from None
        for name, value in pairs:
            if "\0" in value:
                raise Malformed(f"the query has the character NUL in {name!r}")
            if name in self._not_text and value.lower() == "null":
                # The decoder would take the word for no value.
                raise Malformed(f"the query is wrong at {name}: {value!r} is no value")
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise Malformed(f"the query names {name!r} twice", parameter=name)
            else:
                values[name] = value
        return values


def _fields(kind: Any, wanted: type[msgspec.inspect.Type]) -> frozenset[str]:
    """Return the parameters of one type, or of that type or none."""
    info = msgspec.inspect.type_info(kind)
    if not isinstance(info, msgspec.inspect.StructType):
        return frozenset()
    return frozenset(field.name for field in info.fields if _admits(field.type, wanted))


def _admits(kind: msgspec.inspect.Type, wanted: type[msgspec.inspect.Type]) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_admits(option, wanted) for option in kind.types)
    if isinstance(kind, msgspec.inspect.Metadata):
        return _admits(kind.type, wanted)
    return isinstance(kind, wanted)


def path_names(parameters: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the names in a path; raises NotFound for what can be no name."""
    for kind, name in parameters.items():
        if _name.match(name) is None:
            raise NotFound(f"there is no {kind} {name!r}", **{kind: name})
    return parameters


def idempotency_key(header: bytes | None) -> str | None:
    """Return the key of the header, if there is one."""
    if header is None:
        return None
    if _key.match(header) is None:
        raise Malformed("Idempotency-Key must be 1 to 255 visible ASCII characters")
    return header.decode("ascii")
