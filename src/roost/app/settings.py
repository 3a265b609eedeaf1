"""Settings, read once and passed down; there is no global configuration object.

| setting | environment | in the TOML file | default |
|---|---|---|---|
| strategy of requests that name none | SCHEDULING_STRATEGY | scheduling_strategy | least_loaded |
| fleet file of commands without --fleet | ROOST_FLEET | fleet | none |
| output of commands without -o | ROOST_OUTPUT | output | table |
| runners-up that a placement names | ROOST_RUNNERS_UP | runners_up | 2 |

ROOST_CONFIG names the TOML file. The environment wins over the file.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from roost.base.errors import InvalidRequest, InvalidStrategy, NotFound

T = TypeVar("T")

CONFIG_VARIABLE = "ROOST_CONFIG"
DEFAULT_STRATEGY = "least_loaded"
OUTPUTS = ("table", "json", "yaml")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user has set."""

    scheduling_strategy: str = DEFAULT_STRATEGY
    fleet: str | None = None
    output: str = "table"
    runners_up: int = 2


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return "SCHEDULING_STRATEGY" if name == "scheduling_strategy" else f"ROOST_{name.upper()}"


def read_settings(
    environment: Mapping[str, str], strategies: Sequence[str] | None = None
) -> Settings:
    """Read settings from the environment and the file it names; refuse what makes no sense.

    Without `strategies` the strategy's name is not looked at: whoever uses it will.
    """
    path = environment.get(CONFIG_VARIABLE)
    given: dict[str, tuple[object, str]] = {}  # value, and where it was set
    for name, value in (_read_file(Path(path)) if path else {}).items():
        given[name] = value, f"{path}: {name}"
    for name in _names():
        # An empty variable is one that was unset the way some shells and unit files do it.
        if text := environment.get(variable(name)):
            given[name] = text, variable(name)
    return Settings(
        scheduling_strategy=_strategy(given, strategies),
        fleet=_pick(given, "fleet", _text, None),
        output=_pick(given, "output", _output, "table"),
        runners_up=_pick(given, "runners_up", _count, 2),
    )


def _names() -> list[str]:
    return [field.name for field in fields(Settings)]


def _read_file(path: Path) -> dict[str, object]:
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise NotFound(
            f"cannot read {str(path)!r}, which {CONFIG_VARIABLE} names: {error.strerror}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {error}", file=str(path)) from error
    for name in found:
        if name not in _names():
            close = difflib.get_close_matches(name, _names(), n=1)
            raise InvalidRequest(
                f"{path}: unknown setting {name!r}; known settings: {', '.join(_names())}",
                hint=f"Maybe {close[0]!r}?" if close else None,
                setting=name,
            )
    return found


def _pick(
    given: Mapping[str, tuple[object, str]],
    name: str,
    read: Callable[[object, str], T],
    default: T,
) -> T:
    return read(*given[name]) if name in given else default


def _strategy(given: Mapping[str, tuple[object, str]], strategies: Sequence[str] | None) -> str:
    name = _pick(given, "scheduling_strategy", _text, DEFAULT_STRATEGY)
    if strategies is not None and name not in strategies:
        raise InvalidStrategy(name, strategies)
    return name


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{where} is {value!r}, which is no text")
    return value


def _output(value: object, where: str) -> str:
    if value not in OUTPUTS:
        raise InvalidRequest(
            f"{where} is {value!r}; it can be {', '.join(OUTPUTS[:-1])} or {OUTPUTS[-1]}"
        )
    return str(value)


def _count(value: object, where: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or int(text) > 16:
        raise InvalidRequest(f"{where} is {value!r}; it can be a number from 0 to 16")
    return int(text)
