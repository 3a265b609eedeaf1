"""Hypothesis profiles: `ci` by default, `long` with HYPOTHESIS_PROFILE=long.

`ci` draws the same examples in every run, so that a red build means a changed program. `long`
runs ten times as many, other ones each time, and prints how to repeat a failure.
"""

import gc
import os
import time
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.databases", "tests.prometheus", "tests.turns"]

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci", max_examples=100, derandomize=True, deadline=None, suppress_health_check=QUIET
)
settings.register_profile(
    "long", max_examples=1000, print_blob=True, deadline=None, suppress_health_check=QUIET
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


#: Tests with real guests. They have a target of their own: a guest takes seconds of a core.
QEMU = ("tests/integration/qemu/", "tests/conformance/test_qemu", "tests/system/test_qemu")
#: Of those, what `make test` runs too: disks and monitors without a guest, and one live move.
SMOKE = (
    "tests/integration/qemu/test_disks.py",
    "tests/integration/qemu/test_driver_monitor.py",
    "tests/integration/qemu/test_migration.py::test_the_counter_goes_on_at_the_next_number[tcp",
)
#: One among those boots a guest all the same: ten seconds of a core.
BOOTS = "::test_a_guest_reads_its_seed_and_its_disk_keeps_what_it_wrote"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs QEMU or kernels by where it is."""
    for item in items:
        names = getattr(item, "fixturenames", None)  # one list for all parameters of a test
        if item.nodeid.startswith(PLACING) and names is not None and "kernels" not in names:
            names.insert(0, "kernels")
        if item.nodeid.startswith(QEMU):
            item.add_marker("qemu")
            if item.nodeid.startswith(SMOKE) and not item.nodeid.endswith(BOOTS):
                item.add_marker("smoke")


def pytest_collection_finish() -> None:
    """Let no search for garbage go through what was imported and collected again."""
    gc.collect()
    gc.freeze()


#: Tests that place VMs while a clock runs: compiling kernels takes longer than they may.
PLACING = ("tests/api/", "tests/conformance/", "tests/integration/control/")


@pytest.fixture(scope="session")
def kernels() -> None:
    """Make the kernels ready: compiled, once for each change of them, or read from disk."""
    from roost.app.warming import warm_up  # most runs of a few tests need no kernel

    warm_up()


#: What files of this process are kept from, before a test runs.
_UMASK = os.umask(0o022)
os.umask(_UMASK)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Take back what a server, agent or worker that ran in this process has set for all of it.

    They keep other users from their files; files of the next test would be kept from them, too.
    """
    os.umask(_UMASK)


#: What a Linux guest says on its console when its memory is not what it wrote.
_BROKEN = (b"---[ end trace", b"Kernel panic", b"segfault at")
_MOST_TRIES = 3


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test with real guests again when its guest's kernel broke.

    QEMU 7.2 under software emulation loses writes of a guest whose memory is copied while it runs,
    also by hand and without roost (docs/limits.md). Such a guest says so on its console; a test
    that fails without that is not run again.
    """
    if item.get_closest_marker("qemu") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for tried in range(1, _MOST_TRIES + 1):
        began = time.time()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failed = any(report.failed for report in reports)
        if not failed or tried == _MOST_TRIES or not _broken_guests(item, began):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _broken_guests(item: pytest.Item, since: float) -> list[Path]:
    """Return the consoles, written since then, of guests that broke."""
    base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    consoles = (Path(at, "console.log") for at, _, files in os.walk(base) if "console.log" in files)
    return [console for console in consoles if _is_broken(console, since)]


def _is_broken(console: Path, since: float) -> bool:
    try:
        is_new = console.stat().st_mtime >= since
        return is_new and any(word in console.read_bytes() for word in _BROKEN)
    except FileNotFoundError:  # what a failed test leaves running still cleans up
        return False


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch of `make goldens`."""
    parser.addoption(
        "--rewrite-goldens", action="store_true", help="rewrite tests/scenario/*/*.expect"
    )
