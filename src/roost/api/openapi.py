"""The OpenAPI document, written from the table and from the structs themselves.

The constraints that the document shows are those that the decoders enforce, because both come from
the same annotations. The router's own generator is not used: it does not know our statuses, and the
schemas of the structs are msgspec's to tell.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from roost import __version__
from roost.api.errors import STATUS
from roost.api.reading import KEY, NAME
from roost.parts.roles import ANYONE, JOINING
from roost.parts.routes import Route
from roost.wire.bodies import ErrorBody
from roost.wire.queries import Query

_REFERENCE = "#/components/schemas/{name}"
Json = dict[str, Any]

_MEANING = {
    200: "Done.",
    201: "Created.",
    202: "Accepted; it goes on from here.",
    204: "Done; there is nothing to show.",
}
#: Amounts as text. No pattern refuses them: the control plane does, and says what was meant.
_AMOUNTS = {
    "cpu": ["250m", "2"],
    "memory": ["8GiB", "512MiB"],
    "disk": ["40GiB", "1TiB"],
    "bandwidth": ["100MiB", "1GiB"],
}
_REPLAYED = "`true` when an earlier request with the same key made it."


def document(table: Sequence[Route]) -> bytes:
    """Return the OpenAPI document as JSON."""
    return msgspec.json.encode(describe(table))


def describe(table: Sequence[Route]) -> Json:
    """Return the OpenAPI document."""
    schemas = _Schemas(table)
    paths: dict[str, Json] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    for route in table:
        if route.makes is not None:
            _link(paths, table, route.path, *route.makes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "roost",
            "version": __version__,
            "summary": "A VM scheduler that finds every VM its place and says why.",
            "description": "Agents keep one WebSocket to /api/v1/agents/connect, with their "
            "credential as the bearer token; the messages are those of roost.wire.agentlink.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token made by `roost token create`.",
                }
            },
        },
    }


def _link(
    paths: dict[str, Json], table: Sequence[Route], path: str, parameter: str, field: str
) -> None:
    """Add OpenAPI links from responses that create something to operations that take it."""
    links = {
        _operation_id(route): {
            "operationId": _operation_id(route),
            "parameters": {parameter: f"$response.body#/{field}"},
        }
        for route in table
        if route.path.startswith(f"{path}/{{{parameter}}}")
    }
    made = paths.get(path, {}).get("post", {"responses": {}})
    for status, response in made["responses"].items():
        if status.startswith("2"):
            response["links"] = links


class _Schemas:
    """The schemas of all bodies of a table."""

    def __init__(self, table: Sequence[Route]) -> None:
        kinds: list[Any] = [ErrorBody]
        for route in table:
            kinds += [kind for kind in (route.body, route.query, route.reply) if kind is not None]
        schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
        self._by_kind = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
        queries = {kind.__name__ for kind in kinds if inspect.isclass(kind) and _is_query(kind)}
        self._queries = {name: components.pop(name) for name in queries}
        self.components = {name: _tidy(components[name]) for name in sorted(components)}
        for component in self.components.values():
            _show_amounts(component.get("properties", {}))

    def of(self, kind: Any) -> Json:
        """Return the schema of a body, which is mostly a reference."""
        return dict(self._by_kind[repr(kind)])

    def parameters(self, kind: Any) -> list[Json]:
        """Return a query's fields as parameters."""
        schema = self._queries[kind.__name__]
        return [
            _parameter("query", name, _not_null(_tidy(field)), name in schema["required"])
            for name, field in schema["properties"].items()
        ]


def _is_query(kind: type) -> bool:
    return issubclass(kind, Query)


def _operation(route: Route, schemas: _Schemas) -> Json:
    operation: Json = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.noun],
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas),
        "security": [] if route.roles == ANYONE else [{"bearer": []}],
    }
    if route.roles == JOINING:
        operation["description"] = "The bearer token is a one-time join token."
    elif route.roles != ANYONE:
        operation["description"] = f"Roles: {', '.join(sorted(route.roles))}."
    if route.body is not None:
        content = {"application/json": {"schema": schemas.of(route.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(route: Route) -> str:
    return f"{route.noun}_{route.verb}"


def _named_by(parameter: str, route: Route) -> str:
    """Say what the name in a path is."""
    if "project" in getattr(route.query, "__struct_fields__", ()):
        return "An id, or a name in the project that the query names."
    return "An id." if parameter == "id" else "A name."


def _parameters(route: Route, schemas: _Schemas) -> list[Json]:
    name_schema = {"type": "string", "pattern": NAME}
    parameters = [
        _parameter("path", name, {**name_schema, "description": _named_by(name, route)}, True)
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if route.query is not None:
        parameters += schemas.parameters(route.query)
    if route.keyed:
        parameters.append(
            _parameter(
                "header",
                "Idempotency-Key",
                {
                    "type": "string",
                    "pattern": KEY,
                    "description": "The same key with the same body does it once.",
                },
                False,
            )
        )
    return parameters


def _parameter(place: str, name: str, schema: Json, required: bool) -> Json:
    schema = dict(schema)
    parameter = {"name": name, "in": place, "required": required, "schema": schema}
    if "description" in schema:
        parameter["description"] = schema.pop("description")
    if schema.get("type") == "array":
        parameter |= {"style": "form", "explode": True}
    return parameter


def _responses(route: Route, schemas: _Schemas) -> Json:
    responses: dict[str, Json] = {}
    for status in route.statuses:
        response: Json = {"description": _MEANING.get(status, "Not ready yet.")}
        if status == 200 and 201 in route.statuses:
            response["description"] = "An earlier request with the same key made it."
        if status != 204:
            response["content"] = {_media(route): {"schema": schemas.of(route.reply)}}
        if status == 200 and route.stream is not None:
            response["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        if status == 200 and route.keyed:
            response["headers"] = {
                "Idempotency-Replayed": {
                    "description": _REPLAYED,
                    "schema": {"type": "string", "enum": ["true"]},
                }
            }
        responses[str(status)] = response
    for status, codes in sorted(error_statuses(route).items()):
        if str(status) not in responses:
            responses[str(status)] = _error(status, codes, schemas)
    return responses


def _media(route: Route) -> str:
    return route.media.partition(";")[0]


def _error(status: int, codes: Sequence[str], schemas: _Schemas) -> Json:
    response: Json = {
        "description": f"Codes: {', '.join(codes)}.",
        "content": {"application/json": {"schema": schemas.of(ErrorBody)}},
    }
    text: Json = {"schema": {"type": "string"}}
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {**text, "required": True}}
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {"schema": {"type": "string", "pattern": "^[0-9]+$"}, "required": True}
        }
    return response


#: Why a request may be refused whatever it is for.
ANY_REQUEST = (
    "too_many_requests",
    "path_too_long",
    "request_head_too_large",
    "request_timed_out",
)


def error_statuses(route: Route) -> dict[int, list[str]]:
    """Return the statuses with which a route refuses, and the codes behind each."""
    codes = [*route.errors, *ANY_REQUEST]
    if route.roles != ANYONE:
        codes += ["unauthorized", "unavailable", "agent_service_unavailable"]
        if route.roles != JOINING:
            codes += ["forbidden"]
    if "{" in route.path:
        codes += ["not_found"]
    if route.body is not None:
        codes += ["request_too_large"]
    if route.body is not None or route.query is not None:
        codes += ["invalid_request"]
    statuses: dict[int, list[str]] = {400: ["invalid_request"]}
    for code in codes:
        listed = statuses.setdefault(STATUS[code], [])
        if code not in listed:
            listed.append(code)
    return statuses


def _tidy(schema: Any) -> Any:
    """Unindent the descriptions, which are docstrings."""
    if isinstance(schema, dict):
        return {
            key: inspect.cleandoc(value)
            if key == "description" and isinstance(value, str)
            else _tidy(value)
            for key, value in schema.items()
        }
    return [_tidy(item) for item in schema] if isinstance(schema, list) else schema


def _show_amounts(properties: Json) -> None:
    """Add a pattern and examples to amounts that are text."""
    for name, examples in _AMOUNTS.items():
        for option in properties.get(name, {}).get("anyOf", []):
            if option.get("type") == "string":
                option["examples"] = examples


def _not_null(schema: Json) -> Json:
    """Leave out null, which a query cannot say: the parameter is left out instead."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if not options:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**options[0], **rest} if len(options) == 1 else {**rest, "anyOf": options}
