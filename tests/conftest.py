"""Hypothesis profiles: `ci` by default, `long` with HYPOTHESIS_PROFILE=long.

`ci` draws the same examples in every run, so that a red build means a changed program. `long`
runs ten times as many, other ones each time, and prints how to repeat a failure.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.databases"]

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs QEMU by where it is."""
    for item in items:
        if item.nodeid.startswith(QEMU):
            item.add_marker("qemu")
            if item.nodeid.startswith(SMOKE):
                item.add_marker("smoke")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch of `make goldens`."""
    parser.addoption(
        "--rewrite-goldens", action="store_true", help="rewrite tests/scenario/*.expect"
    )
