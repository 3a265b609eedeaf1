"""Programs that an agent starts get none of the variables that open something."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import roost

FOLDERS = [Path(roost.__file__).parent / name for name in ("agent", "hostkit")]
#: Calls that start a program, with the position of the environment; None: only by name.
SPAWNS = {
    "create_subprocess_exec": None, "create_subprocess_shell": None, "Popen": None,
    "subprocess_exec": None, "subprocess_shell": None,
    "subprocess.run": None, "subprocess.call": None, "check_call": None, "check_output": None,
    "posix_spawn": 2, "posix_spawnp": 2, "execve": 2, "execvpe": 2,
}  # fmt: skip
#: Calls that start a program and can give it no other environment.
BARE = {"os.system", "os.popen", "execv", "execvp", "execl", "execlp", "spawnv", "spawnl"}
GIVEN = "plain_environment("


def bare_spawns(source: str) -> list[int]:
    """Return the lines on which a program is started with more than a plain environment."""
    return [
        call.lineno for call, position in _spawns(ast.parse(source)) if not _given(call, position)
    ]


def _spawns(tree: ast.AST) -> Iterator[tuple[ast.Call, int | None]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        whole = ast.unparse(node.func)
        last = whole.rpartition(".")[2]
        short = ".".join(whole.split(".")[-2:])
        if short in BARE or last in BARE:
            yield node, None
        elif short in SPAWNS or last in SPAWNS:
            yield node, SPAWNS.get(short, SPAWNS.get(last))


def _given(call: ast.Call, position: int | None) -> bool:
    named = [word.value for word in call.keywords if word.arg == "env"]
    if position is not None:
        named += call.args[position : position + 1]
    return any(GIVEN in ast.unparse(value) for value in named)


def test_every_program_is_started_with_a_plain_environment() -> None:
    files = [path for folder in FOLDERS for path in folder.rglob("*.py")]
    found = {path.name: bare_spawns(path.read_text()) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
    spawning = sum(1 for path in files for _ in _spawns(ast.parse(path.read_text())))
    assert spawning >= 7, "the walk has lost sight of what starts programs"


@pytest.mark.parametrize(
    "bare",
    [
        "asyncio.create_subprocess_exec('ip', stdin=x)",
        "subprocess.run(['ip'], env=os.environ | {'LC_ALL': 'C'})",
        "subprocess.Popen(['ip'])",
        "os.posix_spawn('ip', [], os.environ)",
        "os.system('ip')",
    ],
)
def test_a_program_that_would_inherit_all_is_seen(bare: str) -> None:
    assert bare_spawns(bare) == [1]
