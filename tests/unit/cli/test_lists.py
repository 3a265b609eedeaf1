"""Every list can be sorted, shown without headers, by name, as a document, and again and again."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from roost.cli.main import COMMANDS, app
from roost.wire.groups import GroupPage, GroupSummary
from tests.unit.cli.test_reference import commands
from tests.unit.client.canned import CannedServer

#: What a list of contexts needs no server for, and what is on a Kubernetes.
_ELSEWHERE = ("roost context list", "roost kube ")


def listing() -> list[tuple[str, Any]]:
    found = [each for entry in COMMANDS for each in commands(entry.name, entry.load())]
    return [(name, each) for name, each in found if name.endswith(" list")]


def group(name: str, members: int) -> GroupSummary:
    return GroupSummary(
        id=name, name=name, project="default", rule="spread", scope="zone", hard=True, max_skew=1,
        weight=50, selector={}, members=members, generation=1,
    )  # fmt: skip


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["group", "list", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def groups(server: CannedServer) -> CannedServer:
    page = GroupPage(groups=[group("g-10", 3), group("g-9", 20), group("g-1", 1)])
    server.on("GET", "/api/v1/groups", page)
    return server


def test_every_list_has_the_options_of_lists() -> None:
    wanted = {"--sort", "--no-headers", "--watch", "--output"}
    lacking = {}
    for name, command in listing():
        has = {option for each in command.params for option in each.opts}
        if not name.startswith(_ELSEWHERE) and wanted - has:
            lacking[name] = sorted(wanted - has)
    assert lacking == {}
    assert len(listing()) > 12


@pytest.mark.parametrize(
    ("by", "order"),
    [("group", ["g-1", "g-9", "g-10"]), ("-members", ["g-9", "g-10", "g-1"])],
    ids=["names with numbers", "numbers backwards"],
)
def test_rows_come_in_the_order_of_a_column(
    groups: CannedServer, by: str, order: list[str]
) -> None:
    lines = said("--sort", by, "--no-headers").splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == order


def test_a_column_that_is_not_there_is_refused_with_those_that_are(groups: CannedServer) -> None:
    told = said("--sort", "size", code=2)
    assert "no column 'size'" in told
    assert "members" in told


def test_names_come_alone_and_documents_whole(groups: CannedServer) -> None:
    assert said("-o", "name").split() == ["g-10", "g-9", "g-1"]
    assert [each["members"] for each in json.loads(said("-o", "json"))["groups"]] == [3, 20, 1]
