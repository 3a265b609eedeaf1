"""From options to a loaded engine: settings, fleet file, kernels."""

import os
import sys
from dataclasses import dataclass

from roost.app.kernels import announce_compiling
from roost.app.settings import Settings, read_settings
from roost.base.errors import FleetUnavailable
from roost.cli.screen import Output, note
from roost.fleet.fleet import Fleet
from roost.model.description import FleetDescription
from roost.placement.engine import Engine
from roost.placement.strategies import STRATEGIES
from roost.wire.files import load_fleet


@dataclass(frozen=True, slots=True)
class Opened:
    """What a command works with."""

    engine: Engine
    settings: Settings

    @property
    def fleet(self) -> Fleet:
        """Return the fleet that the engine decides on."""
        return self.engine.fleet


def settings() -> Settings:
    """Read the settings of this process."""
    return read_settings(os.environ, tuple(STRATEGIES))


def chosen_output(output: Output | None) -> Output:
    """Return the output that was asked for, or else the one that is set."""
    return output if output is not None else Output(settings().output)


def open_engine(fleet: str | None, vms: str | None = None) -> Opened:
    """Load the fleet."""
    read = settings()
    path = fleet if fleet is not None else read.fleet
    if path is None:
        raise FleetUnavailable(
            "no fleet is loaded: server mode comes later, so pass --fleet FILE",
            hint="Maybe --fleet examples/small.fleet?",
        )
    return build_engine(load_fleet(path, stdin=sys.stdin, vms=vms), read)


def build_engine(
    description: FleetDescription, read: Settings, strategy: str | None = None
) -> Opened:
    """Build an engine on a fleet; a first use of its kernels will be announced."""
    fleet = Fleet.from_description(description)
    engine = Engine(fleet, strategy or read.scheduling_strategy)
    announce_compiling(note)
    return Opened(engine, read)
