"""The systemd units that are shipped: systemd takes them, and their options exist."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from roost.cli.main import app
from roost.cli.words.loading import Entry

UNITS = Path(__file__).parents[3] / "deploy" / "systemd"
SHIPPED = sorted(UNITS.glob("*.service"))


def commands(unit: Path) -> list[list[str]]:
    """Return the command lines that a unit starts."""
    text = unit.read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^ExecStart(?:Pre)?=(.*)$", text, re.M)]


@pytest.mark.parametrize("unit", SHIPPED, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt install systemd")
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/roost/bin/roost", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", here],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", SHIPPED, ids=lambda unit: unit.stem)
def test_every_option_of_a_unit_is_one_of_its_command(unit: Path) -> None:
    for words in commands(unit):
        name, *options = words[1:]
        found = load(name)
        known = {option for parameter in found.params for option in parameter.opts}
        given = {word for word in options if word.startswith("--")}
        assert known
        assert given <= known


def test_guests_outlive_their_agent() -> None:
    assert "\nKillMode=process\n" in (UNITS / "roost-agent.service").read_text()


def load(name: str):
    """Return a command of the program as the parser has it."""
    group = get_command(app)
    context = group.make_context("roost", [name, "--help"], resilient_parsing=True)
    _, found, _ = group.resolve_command(context, [name])
    loaded = found.load() if isinstance(found, Entry) else found
    return getattr(loaded, "commands", {}).get(name, loaded)
