"""From options to a loaded engine: settings, fleet file, kernels."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roost.app.settings import Settings, read_settings
from roost.cli.show.screen import Output, note

if TYPE_CHECKING:
    from roost.fleet.fleet import Fleet
    from roost.model.description import FleetDescription
    from roost.placement.engine import Engine


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded engine and the settings that a command works with."""

    engine: "Engine"
    settings: Settings

    @property
    def fleet(self) -> "Fleet":
        """Return the fleet that the engine decides on."""
        return self.engine.fleet


def settings() -> Settings:
    """Read the settings of this process."""
    from roost.placement.strategies import STRATEGIES

    return read_settings(os.environ, tuple(STRATEGIES))


def chosen_output(output: Output | None) -> Output:
    """Return the output that was asked for, or else the one that is set."""
    return output if output is not None else Output(read_settings(os.environ).output)


def fleet_file(fleet: str | None) -> str | None:
    """Return the fleet file that is meant; none means that the server is asked."""
    return fleet if fleet is not None else read_settings(os.environ).fleet


def open_engine(path: str, vms: str | None = None) -> Opened:
    """Load the fleet from a file."""
    from roost.wire.text.files import load_fleet

    return build_engine(load_fleet(path, stdin=sys.stdin, vms=vms), settings())


def build_engine(
    description: "FleetDescription", read: Settings, strategy: str | None = None
) -> Opened:
    """Build an engine on a fleet; a first use of its kernels will be announced."""
    # The engine takes ten times as long to import as a question to the server takes.
    from roost.app.kernels import announce_compiling
    from roost.fleet.fleet import Fleet
    from roost.placement.engine import Engine

    fleet = Fleet.from_description(description)
    engine = Engine(fleet, strategy or read.scheduling_strategy)
    announce_compiling(note)
    return Opened(engine, read)
