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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch of `make goldens`."""
    parser.addoption(
        "--rewrite-goldens", action="store_true", help="rewrite tests/scenario/*.expect"
    )
