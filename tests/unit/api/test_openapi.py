"""The OpenAPI document: complete, consistent, and as strict as the decoders."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roost.api.errors import STATUS
from roost.api.openapi import describe
from roost.parts import roles
from roost.parts.routes import Route, check_routes
from tests.api.table import ROUTES

DOCUMENT = describe(ROUTES)


def operations() -> list[Any]:
    """Return every operation with its route."""
    return [
        pytest.param(
            route,
            DOCUMENT["paths"][route.path][route.method.lower()],
            id=f"{route.method} {route.path}",
        )
        for route in ROUTES
    ]


def references(value: Any) -> set[str]:
    """Return all references in a document."""
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        own |= set(value["mapping"].values()) if "propertyName" in value else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_the_document_can_be_written_and_read_again() -> None:
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT
    assert DOCUMENT["openapi"] == "3.1.0"


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    schemas = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) == schemas


def test_operations_have_names_of_their_own() -> None:
    names = [param.values[1]["operationId"] for param in operations()]
    assert len(set(names)) == len(names) == len(ROUTES)


@pytest.mark.parametrize(("route", "operation"), operations())
def test_an_operation_tells_the_whole_truth(route: Route, operation: dict[str, Any]) -> None:
    statuses = set(operation["responses"])
    assert statuses >= {str(status) for status in route.statuses} | {"400"}
    assert ("401" in statuses) == (route.roles != roles.ANYONE) == bool(operation["security"])
    assert ("403" in statuses) == (route.roles not in (roles.ANYONE, roles.JOINING))
    assert ("requestBody" in operation) == (route.body is not None) == ("413" in statuses)
    for code in route.errors:
        assert code in operation["responses"][str(STATUS[code])]["description"]
    named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
    assert named == set(re.findall(r"{(\w+)}", route.path))
    assert all(p["required"] for p in operation["parameters"] if p["in"] == "path")


def test_limits_are_those_of_the_decoders() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    vm = schemas["CreateVM"]
    assert vm["additionalProperties"] is False
    assert vm["required"] == ["name"]
    assert vm["properties"]["name"]["pattern"].startswith("^[A-Za-z0-9]")
    assert schemas["CreateVMs"]["properties"]["vms"]["maxItems"] == 10_000
    limit = next(
        p for p in DOCUMENT["paths"]["/api/v1/vms"]["get"]["parameters"] if p["name"] == "limit"
    )
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}


def test_a_query_has_no_null() -> None:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        for parameter in operation["parameters"]:
            assert "null" not in json.dumps(parameter["schema"])


def test_a_table_with_a_flaw_does_not_start() -> None:
    whole = ROUTES[0]
    fields = {name: getattr(whole, name) for name in whole.__slots__}
    with pytest.raises(ValueError, match="names no roles"):
        check_routes((Route(**{**fields, "roles": frozenset()}),))
    with pytest.raises(ValueError, match="twice"):
        check_routes((whole, whole))
    with pytest.raises(ValueError, match="what it gives"):
        check_routes((Route(**{**fields, "reply": None}),))
    with pytest.raises(TypeError, match="roles"):
        Route(**{name: value for name, value in fields.items() if name != "roles"})


def test_the_reference_lists_every_route_with_its_least_role() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "api.md").read_text()
    rows = re.findall(r"^\| ([A-Z]+) \| `([^`]+)` \| ([^|]+) \|", text, flags=re.MULTILINE)
    words = {
        roles.ANYONE: "none",
        roles.JOINING: "join token",
        roles.WORKER: "worker",
        roles.ADMIN: "admin",
        roles.OPERATOR: "operator",
        roles.VIEWER: "viewer",
        roles.OPERATOR | roles.MEMBER: "operator, member",
        roles.VIEWER | roles.MEMBER: "viewer, member",
    }
    table = [(r.method, r.path.removeprefix("/api/v1"), words[r.roles]) for r in ROUTES]
    assert rows == table


def test_no_two_messages_share_a_name() -> None:
    """Two classes of one name would be told apart by their modules, which clients do not know."""
    assert not [name for name in DOCUMENT["components"]["schemas"] if "." in name]
