"""`roost help`: pages of the documents and the help of commands."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.cli import topics
from roost.cli.main import app, run

ROOT = Path(__file__).resolve().parents[3]


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["help", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_alone_it_lists_every_page_with_what_it_is_about() -> None:
    told = said()
    for page in (*(ROOT / "docs/how-to").glob("*.md"), *(ROOT / "docs/reference").glob("*.md")):
        assert page.stem in told
    assert "Drain a host" in told


def test_a_topic_is_its_page() -> None:
    assert said("drain-a-host") == (ROOT / "docs/how-to/drain-a-host.md").read_text() + "\n"


def test_a_command_is_its_help() -> None:
    result = CliRunner().invoke(app, ["help", "vm", "create"])
    assert result.exit_code == 0


def test_what_is_neither_is_told_what_comes_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "drain-host"]) == 3
    assert "drain-a-host" in capsys.readouterr().err


def test_pages_of_an_install_are_found_without_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in topics.FOLDERS:
        (tmp_path / "share" / folder).mkdir(parents=True)
        (tmp_path / "share" / folder / f"of-{folder}.md").write_text(f"# About {folder}\n")
    monkeypatch.setattr(topics, "PLACES", (tmp_path / "docs", tmp_path / "share"))
    assert list(topics.pages()) == ["of-how-to", "of-reference"]
    assert topics.title(topics.pages()["of-how-to"]) == "About how-to"
