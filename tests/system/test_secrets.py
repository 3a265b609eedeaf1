"""Secrets stay where they belong: what other users of the machine can see of real processes."""

import os
import stat
from pathlib import Path

import pytest

from tests.system.processes import Site, eventually

pytestmark = pytest.mark.slow


def open_to_others(folder: Path) -> list[str]:
    """Return what is in a folder, itself included, that other users may use."""
    found = [folder, *folder.rglob("*")]
    modes = {path: path.lstat().st_mode for path in found if not path.is_symlink()}
    return [f"{path} {stat.filemode(mode)}" for path, mode in modes.items() if mode & 0o077]


@pytest.fixture
def loose_umask() -> object:
    """Let processes of a test begin with the usual umask."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_folders_of_serve_and_agent_are_private_and_older_ones_are_closed(
    site: Site, loose_umask: object
) -> None:
    server = site.serve()
    agent = site.hosts("here", server, fence_guard=True)
    plane = site.folder / "plane"
    assert (plane / "roost.db-wal").exists()
    assert open_to_others(plane) == []
    assert open_to_others(agent.folder) == []
    assert "other users" not in server.log() + agent.log()

    server.stop()
    agent.stop()
    for folder in (plane, agent.folder):
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    again = site.serve_again(server)
    site.hosts_again(agent)
    eventually("the agent closes its folder", lambda: not open_to_others(agent.folder))
    assert open_to_others(plane) == []
    assert "other users could read roost.db, roost.db.lock" in again.log()
    assert f"files and folders of {agent.folder}" in agent.log()
