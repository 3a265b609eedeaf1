"""Parameters of a job kind, checked against its JSON schema.

The schema itself is checked when the kind is made, so a submission can only be wrong about its
parameters. Patterns and references to other documents are refused: a schema comes from users and is
evaluated here.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from jsonschema_rs import Draft202012Validator, ValidationError, meta

from roost.base.errors import InvalidRequest

#: Bytes of a schema, and of the parameters of one job.
MOST_SCHEMA, MOST_PARAMETERS = 65_536, 65_536
_REFUSED = ("$ref", "$dynamicRef", "pattern", "patternProperties", "$schema", "$id")


def check_schema(schema: Mapping[str, Any]) -> str:
    """Refuse what is no JSON schema or would cost too much; return it as it is kept."""
    text = msgspec.json.encode(schema, order="sorted").decode()
    if len(text) > MOST_SCHEMA:
        raise InvalidRequest(f"a schema may have {MOST_SCHEMA} bytes; this one has {len(text)}")
    for word in _words(schema):
        if word in _REFUSED:
            raise InvalidRequest(f"{word!r} is not allowed in a schema of parameters", word=word)
    try:
        meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    except ValidationError as error:
        raise InvalidRequest(f"this is no JSON schema: {error.message[:300]}") from error
    return text


def _words(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        found = [str(key) for key in schema]
        for value in schema.values():
            found += _words(value)
        return found
    if isinstance(schema, list):
        return [word for value in schema for word in _words(value)]
    return []


@lru_cache(maxsize=256)
def _validator(text: str) -> Draft202012Validator:
    return Draft202012Validator(msgspec.json.decode(text))


def check_parameters(schema: Mapping[str, Any], parameters: Mapping[str, Any], where: str) -> None:
    """Refuse parameters that a kind does not take, with the field and what is wrong with it."""
    if len(msgspec.json.encode(parameters)) > MOST_PARAMETERS:
        raise InvalidRequest(f"{where}parameters may have {MOST_PARAMETERS} bytes")
    if not schema:
        return
    error = next(
        iter(_validator(msgspec.json.encode(schema).decode()).iter_errors(dict(parameters))), None
    )
    if error is not None:
        field = ".".join(str(part) for part in error.instance_path) or "parameters"
        raise InvalidRequest(f"{where}{field}: {error.message[:300]}", field=field)
