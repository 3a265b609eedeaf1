"""Settings from the environment and a TOML file."""

from pathlib import Path

import pytest

from roost.app.settings import Settings, read_settings
from roost.base.errors import InvalidRequest, InvalidStrategy, NotFound

STRATEGIES = ("least_loaded", "best_fit", "round_robin", "random")


def test_nothing_set_means_least_loaded_and_tables() -> None:
    assert read_settings({}, STRATEGIES) == Settings("least_loaded", None, "table", 2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy_comes_from_its_seed_variable(name: str) -> None:
    settings = read_settings({"SCHEDULING_STRATEGY": name}, STRATEGIES)
    assert settings.scheduling_strategy == name


def test_an_empty_variable_counts_as_unset() -> None:
    settings = read_settings({"SCHEDULING_STRATEGY": "", "ROOST_CONFIG": ""}, STRATEGIES)
    assert settings.scheduling_strategy == "least_loaded"


def test_unknown_strategy_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(InvalidStrategy, match=r"'bestest'.*least_loaded, best_fit") as caught:
        read_settings({"SCHEDULING_STRATEGY": "bestest"}, STRATEGIES)
    assert caught.value.code == "invalid_strategy"
    assert caught.value.details["valid"] == list(STRATEGIES)


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "roost.toml"
    path.write_text('scheduling_strategy = "best_fit"\nfleet = "a.fleet"\nrunners_up = 5\n')
    settings = read_settings({"ROOST_CONFIG": str(path), "ROOST_FLEET": "b.fleet"}, STRATEGIES)
    assert settings == Settings("best_fit", "b.fleet", "table", 5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('scheduling_stratgy = "random"', "unknown setting 'scheduling_stratgy'"),
        ("scheduling_strategy = 3", "which is no text"),
        ('output = "xml"', "it can be table, json or yaml"),
        ("runners_up = -1", "from 0 to 16"),
        ("runners_up = true", "from 0 to 16"),
        ("fleet =", "roost.toml"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "roost.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=says):
        read_settings({"ROOST_CONFIG": str(path)}, STRATEGIES)


def test_a_close_setting_is_suggested(tmp_path: Path) -> None:
    path = tmp_path / "roost.toml"
    path.write_text('ouput = "json"')
    with pytest.raises(InvalidRequest) as caught:
        read_settings({"ROOST_CONFIG": str(path)}, STRATEGIES)
    assert caught.value.hint == "Maybe 'output'?"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(NotFound, match="ROOST_CONFIG"):
        read_settings({"ROOST_CONFIG": "/no/such.toml"}, STRATEGIES)
