"""Which server, and as whom."""

import stat
from pathlib import Path

import pytest

from roost.base.errors import InvalidRequest, NotFound
from roost.client.context import Context, context_target, read_context, write_context

HERE = Context(server="http://10.0.0.1:7070", token="roost_1_here")


def test_without_anything_the_server_of_this_machine_is_meant(tmp_path: Path) -> None:
    assert read_context({}, tmp_path) == Context(server="http://127.0.0.1:7070")


def test_a_file_in_a_parent_folder_holds(tmp_path: Path) -> None:
    write_context(tmp_path / ".roost" / "context.json", HERE)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert read_context({}, below) == HERE


def test_the_file_at_home_comes_last(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    folder.mkdir()
    write_context(home / ".config" / "roost" / "context.json", HERE)
    environment = {"HOME": str(home)}
    assert read_context(environment, folder) == HERE
    nearer = Context(server="http://127.0.0.1:1", token="near")
    write_context(folder / ".roost" / "context.json", nearer)
    assert read_context(environment, folder) == nearer


def test_a_file_that_is_named_wins_and_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    environment = {"ROOST_CONTEXT": str(path)}
    with pytest.raises(NotFound, match=r"other\.json"):
        read_context(environment, tmp_path)
    write_context(path, HERE)
    assert read_context(environment, tmp_path) == HERE


def test_environment_wins_over_the_file_and_options_over_both(tmp_path: Path) -> None:
    write_context(tmp_path / ".roost" / "context.json", HERE)
    environment = {"ROOST_SERVER": "http://b:1", "ROOST_TOKEN": "from-env"}
    assert read_context(environment, tmp_path) == Context(server="http://b:1", token="from-env")
    given = read_context(environment, tmp_path, server="http://c:1", token="given")
    assert given == Context(server="http://c:1", token="given")


def test_a_token_is_not_shown_to_another_server(tmp_path: Path) -> None:
    write_context(tmp_path / ".roost" / "context.json", HERE)
    assert read_context({}, tmp_path, server="http://elsewhere:7070").token is None
    assert read_context({}, tmp_path, server=HERE.server + "/").token == HERE.token


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "context.json"
    path.write_text("{}")
    path.chmod(0o644)
    write_context(path, HERE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["context.json"]


@pytest.mark.parametrize("text", ["", "{", '{"server": 7}', "[]"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "context.json"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=r"context\.json"):
        read_context({"ROOST_CONTEXT": str(path)}, tmp_path)


def test_a_new_context_goes_where_it_will_be_found(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path / "home")}
    folder = tmp_path / "work"
    folder.mkdir()
    target = context_target(environment, folder)
    write_context(target, HERE)
    assert read_context(environment, folder) == HERE
    write_context(folder / ".roost" / "context.json", HERE)
    assert context_target(environment, folder) == folder / ".roost" / "context.json"
    named = {"ROOST_CONTEXT": "/somewhere/else.json"}
    assert context_target(named, folder) == Path("/somewhere/else.json")
