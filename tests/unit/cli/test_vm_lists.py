"""Lists of VMs: read no further than they are shown, and passed on as the API sent them."""

import json
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from roost.cli.show.screen import Output
from roost.cli.watch.following import fetched
from roost.cli.words.session import Session
from tests.unit.cli.test_server_commands import said
from tests.unit.client.bodies import host, vm
from tests.unit.client.canned import CannedServer, Reply, Seen


def sent(name: str, **labels: str) -> dict[str, Any]:
    """Return a VM as a later release might send it: with a field that nobody here knows."""
    known: dict[str, Any] = msgspec.to_builtins(vm(name, labels=labels))
    return known | {"of_a_later_release": [1, {"b": None}]}


def two_pages(server: CannedServer) -> list[dict[str, Any]]:
    """Lay out three VMs on two pages."""
    listed = [sent("a", team="x"), sent("b", team="y"), sent("c", team="x", tier="db")]

    def page(seen: Seen) -> Reply:
        more = dict(seen.query).get("after") is None
        return Reply(
            200, {"vms": listed[:2] if more else listed[2:], "next": "2" if more else None}
        )

    server.on("GET", "/api/v1/vms", page)
    return listed


def test_json_has_the_bodies_that_the_api_sent(server: CannedServer) -> None:
    listed = two_pages(server)
    document = said("vm", "list", "-o", "json")
    assert json.loads(document) == {"vms": listed, "next": None}
    # In the order of its fields, too.
    assert document == json.dumps({"vms": listed, "next": None}, indent=2) + "\n"


@pytest.mark.parametrize("form", ["json", "name", "yaml", "table"])
def test_every_form_has_the_vms_that_a_selector_matches(server: CannedServer, form: str) -> None:
    two_pages(server)
    printed = said("vm", "list", "-l", "team!=y", "--no-headers", "-o", form)
    names = {
        "json": lambda: [each["name"] for each in json.loads(printed)["vms"]],
        "name": printed.split,
        "yaml": lambda: [
            line.split()[-1] for line in printed.splitlines() if line.strip("- ")[:5] == "name:"
        ],
        "table": lambda: [line.split()[0] for line in printed.splitlines()],
    }
    assert names[form]() == ["a", "c"]


def test_names_are_all_that_is_read_for_names(server: CannedServer) -> None:
    page = {"vms": [{"name": "a", "demand": "nothing that can be read"}], "next": None}
    server.on("GET", "/api/v1/vms", Reply(200, page))
    assert said("vm", "list", "-o", "name") == "a\n"


class Answer(msgspec.Struct):
    """An answer that counts how often it is written out."""

    written: list[str] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        self.written.append("again")
        return "an answer"


def test_an_answer_is_not_written_into_a_message_that_nobody_reads(server: CannedServer) -> None:
    answer = Answer()

    async def fetch(_: object) -> Answer:
        return answer

    found = fetched(Session(Output.TABLE, server.url, "roost_1_secret"), fetch)
    assert found is answer
    assert answer.written == []


def test_a_list_as_a_document_loads_nothing_to_draw_and_nothing_to_watch_with(
    server: CannedServer,
) -> None:
    two_pages(server)
    program = "import sys\nfrom roost.cli.main import run\nrun(['vm', 'list', '-o', 'json'])\n"
    program += "print(sorted({'rich.console', 'rich.text', 'asyncio'} & sys.modules.keys()))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60,
        env=os.environ | {"ROOST_SERVER": server.url, "ROOST_TOKEN": "roost_1_secret"},
    )  # fmt: skip
    assert found.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("form", ["table", "name"])
def test_hosts_come_in_the_order_of_their_names(server: CannedServer, form: str) -> None:
    joined = [host(name) for name in ("hv-44", "hv-9", "hv-35")]
    server.on("GET", "/api/v1/hosts", Reply(200, {"hosts": joined, "next": None}))
    printed = said("host", "list", "--no-headers", "-o", form).splitlines()
    assert [line.split()[0] for line in printed] == ["hv-9", "hv-35", "hv-44"]
