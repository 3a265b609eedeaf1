"""The command as a whole: what help says, what is loaded, completion, the wrapper."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost import __version__
from roost.cli.main import COMMANDS, app, run
from roost.cli.running.agent import read_gpus, read_ratio
from roost.cli.show import sentences
from roost.model.flow import Placement, RunnerUp
from roost.placement.strategies import SCORE_ONE
from roost.wire import bodies as b
from roost.wire.answers import placement_body
from tests.unit.client.bodies import host, vm
from tests.unit.client.canned import CannedServer

ROOT = Path(__file__).resolve().parents[3]
QUIET = {"ROOST_SERVER": "http://127.0.0.1:9", "PATH": os.environ["PATH"]}


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_table_says_what_the_command_says(entry: object) -> None:
    command = entry.load()  # type: ignore[attr-defined]
    said = inspect.cleandoc(command.help).splitlines()[0]
    assert said == entry.help  # type: ignore[attr-defined]
    assert command.name == entry.name  # type: ignore[attr-defined]


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_has_help(entry: object) -> None:
    name: str = entry.name  # type: ignore[attr-defined]
    assert (
        f"Usage: roost {name}"
        in CliRunner().invoke(app, [name, "--help"], prog_name="roost").stdout
    )


def test_help_is_in_panels() -> None:
    told = CliRunner().invoke(app, ["--help"]).stdout
    for part in ("What there is", "Questions", "Running roost", "--install-completion"):
        assert part in told


@pytest.mark.parametrize("name", ["vm", "host", "project", "token"])
def test_a_group_alone_prints_its_help(name: str) -> None:
    result = CliRunner().invoke(app, [name])
    assert result.exit_code == 0
    assert "Commands" in result.stdout


def test_mistakes_name_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["vm", "craete"]) == 2
    said = capsys.readouterr().err
    assert "'create'" in said
    assert "Maybe roost vm --help tells more." in said
    assert run(["hots", "-o", "json"]) == 2
    assert "'host'" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert run(["host", "info", "-o", "yaml"]) == 2
    assert "HOST" in capsys.readouterr().out


def loaded(*arguments: str) -> str:
    """Return which heavy modules a command line loads, in a process of its own."""
    program = (
        "import sys\nfrom roost.cli.main import run\n"
        f"run({list(arguments)!r})\n"
        "heavy = ('numpy', 'numba', 'ortools', 'litestar', 'sqlalchemy')\n"
        "print('LOADED', [m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, timeout=60, env=QUIET,
    )  # fmt: skip
    return found.stderr.split("LOADED ")[1].strip()


@pytest.mark.parametrize(
    "line",
    ["--help", "vm list --help", "vm list", "place --cpu 1 --memory 1GiB", "serve --help",
     "agent --help", "doctor", "capacity --cpu 1 --memory 1GiB"],
)  # fmt: skip
def test_what_asks_a_server_loads_no_engine(line: str) -> None:
    assert loaded(*line.split()) == "[]"


def test_help_does_not_even_load_the_client() -> None:
    program = "import sys\nfrom roost.cli.main import run\nrun(['vm', 'list', '--help'])\n"
    program += "print('httpx' in sys.modules, 'roost.wire.bodies' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.splitlines()[-1] == "False False"


def test_a_command_that_draws_nothing_loads_nothing_to_draw_with() -> None:
    program = "import sys\nfrom roost.cli.main import run\nrun(['--version'])\n"
    program += "drawn = 'rich.console' in sys.modules\nfrom roost.client import Client\n"
    program += "import httpx\nprint(drawn, 'httpx._main' in sys.modules, callable(httpx.main))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.splitlines() == [f"roost {__version__}", "False False True"]


def test_sentences_know_the_engines_score() -> None:
    assert sentences.SCORE_ONE == SCORE_ONE


def complete(line: str, server: str) -> list[str]:
    """Return what the shell would offer at the end of a line."""
    environment = {
        "_ROOST_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": line,
        "ROOST_SERVER": server,
        "PATH": os.environ["PATH"],
    }
    found = subprocess.run(
        [sys.executable, "-m", "roost.cli.main"],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip
    assert found.stderr == ""
    return found.stdout.split()


def test_the_shell_completes_names_of_the_server() -> None:
    with CannedServer() as server:
        server.on("GET", "/api/v1/vms", b.VMPage(vms=[vm("web-1"), vm("db-1")]))
        server.on("GET", "/api/v1/hosts", b.HostPage(hosts=[host("h1"), host("h2")]))
        assert any("web-1" in word for word in complete("roost vm show w", server.url))
        assert not any("db-1" in word for word in complete("roost vm show w", server.url))
        assert any("h2" in word for word in complete("roost host drain h", server.url))
        assert any("drain" in word for word in complete("roost host dr", server.url))
        assert any("capacity" in word for word in complete("roost ca", server.url))


def test_completion_without_a_server_offers_nothing_and_says_nothing() -> None:
    assert complete("roost vm show w", "http://127.0.0.1:9") == ["_files"]  # the shell's own


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("serve", "--tls-cert", "c.pem"), "Maybe add --tls-key FILE."),
        (("serve", "--log-format", "xml"), "xml"),
        (("serve", "--strategy", "fastest"), "least_loaded"),
        (("serve", "--offline-s", "1"), "Maybe --heartbeat-s 5"),
        (("serve", "--worker-silent-s", "5"), "15"),
        (("demo", "--jobs", "--plan"), "four demos"),
        (("serve", "--pressure-bound", "disk=3"), "Maybe --pressure-bound cpu=40."),
        (("serve", "--pressure-bound", "cpu=nan"), "0 to 100"),
        (("agent",), "--name"),
        (("agent", "--name", "h", "--gpu", "A100"), "Maybe A100:1?"),
        (("agent", "--name", "h", "--gpu", "A100:0"), "1 to 62"),
        (("agent", "--name", "h", "--memory", "8Gb"), "Maybe 8GiB"),
        (("agent", "--name", "h", "--overcommit-cpu", "0"), "0.1 and 100"),
        (("agent", "--name", "h", "--label", "x"), "KEY=VALUE"),
        (("agent", "--name", "h", "--count", "0"), "--count"),
    ],
)
def test_wrong_options_of_services_are_refused(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert says in capsys.readouterr().err


def test_agent_words_are_read() -> None:
    assert (read_gpus("A100:4").model, read_gpus("A100:4").count) == ("A100", 4)
    assert read_ratio("1.5") == 1500


def test_the_wrapper_runs_from_any_folder(tmp_path: Path) -> None:
    if not (ROOT / ".venv" / "bin" / "roost").exists():
        pytest.skip("no .venv here; `make setup` builds it")
    link = tmp_path / "r"
    link.symlink_to(ROOT / "roost")
    for command in (ROOT / "roost", link):
        found = subprocess.run(
            [command, "--version"],
            capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path,
        )  # fmt: skip
        assert found.stdout.startswith("roost ")


def test_why_says_when_the_host_number_decided() -> None:
    tie = Placement(
        "web-1",
        "h1",
        0,
        "least_loaded",
        0,
        runners_up=(RunnerUp("h2", 0), RunnerUp("h3", SCORE_ONE)),
    )
    assert sentences.why(placement_body(tie, 1)) == (
        "least_loaded gave it the lowest score, 0.0000, as h2 would have, and ties go to the lower "
        "host number; next came h3 (1.0000 behind)"
    )
