"""Options that commands share: the fleet, the output, and everything a request may ask for.

The request options are one table. Each stands for the word of the same name in a fleet file, so
the two can never mean different things; `takes_request` adds them all to a command.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest
from roost.cli.show.reporting import reports_errors as reports_errors
from roost.cli.show.screen import Output
from roost.cli.words.completing import (
    complete_flavors,
    complete_from,
    complete_groups,
    complete_hosts,
    complete_projects,
    complete_racks,
    complete_strategies,
    complete_zones,
)

if TYPE_CHECKING:
    from roost.model.flow import PlaceRequest

FleetOption = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        "-f",
        metavar="FILE",
        help="Fleet file: .fleet, Ganeti (.data) or .csv; - reads .fleet from standard input.",
    ),
]
VMsOption = Annotated[
    str | None,
    typer.Option("--vms", metavar="FILE", help="CSV file of the VMs that run on a .csv fleet."),
]
OutputOption = Annotated[
    Output | None,
    typer.Option(
        "--output", "-o", help="Answer as tables (wide: more columns), names, JSON or YAML."
    ),
]


class _OwnProject:
    """Marks an option for a project that the context can give."""


#: In the annotation of an option: without it, ROOST_PROJECT or the context's project holds.
OWN_PROJECT = _OwnProject()


@dataclass(frozen=True, slots=True)
class RequestOption:
    """One option that says something about the VM."""

    word: str
    metavar: str
    help: str
    many: bool = False
    panel: str = "The VM"

    @property
    def parameter(self) -> str:
        """Return the name as a Python parameter."""
        return f"request_{self.word.replace('-', '_')}"


_WHERE = "Where it may go"
REQUEST_OPTIONS = (
    RequestOption("name", "NAME", "Name of the VM."),
    RequestOption("flavor", "NAME", "Flavor of the server, in place of amounts."),
    RequestOption("cpu", "CORES", "Cores (4, 0.5) or millicores (250m)."),
    RequestOption("memory", "SIZE", "Memory, with its unit (8GiB)."),
    RequestOption("disk", "SIZE", "Disk, with its unit (40GiB)."),
    RequestOption("x", "NAME=N", "Amount of an extended resource.", many=True),
    RequestOption("gpu", "N", "Number of GPUs."),
    RequestOption("gpu-share", "N", "Thousandths of each GPU (1 to 1000)."),
    RequestOption("gpu-model", "MODEL", "GPU models that will do.", many=True),
    RequestOption("gpu-memory", "SIZE", "Least memory of each GPU."),
    RequestOption("numa", "MODE", "any, one (cell) or split (over two)."),
    RequestOption(
        "group",
        "GROUP",
        "A group of the fleet, or a new one with its rule ('web anti-affinity host').",
        many=True,
    ),
    RequestOption(
        "project",
        "NAME",
        "Project that the VM belongs to; else ROOST_PROJECT, else the context's, else your own.",
    ),
    RequestOption("priority", "N", "Priority of the VM."),
    RequestOption("strategy", "NAME", "Strategy for this request; see `roost strategies`."),
    RequestOption("seed", "N", "Seed of the random strategy."),
    RequestOption(
        "label", "TERM", "Condition on a host's labels ('tier in gold,silver').", True, _WHERE
    ),
    RequestOption("tolerate", "TAINT", "Taints that do no harm (KEY, KEY=VALUE, *).", True, _WHERE),
    RequestOption("zone", "ZONE", "Zones that will do.", True, _WHERE),
    RequestOption("rack", "RACK", "Racks that will do.", True, _WHERE),
    RequestOption("site", "SITE", "Sites that will do.", True, _WHERE),
    RequestOption("arch", "ARCH", "Architecture of the host.", panel=_WHERE),
    RequestOption("driver", "DRIVER", "Driver of the host.", panel=_WHERE),
    RequestOption("capability", "NAME", "Capabilities the host must have.", True, _WHERE),
    RequestOption("pin", "HOST", "One of these hosts.", True, _WHERE),
    RequestOption("exclude", "HOST", "None of these hosts.", True, _WHERE),
    RequestOption(
        "prefer", "TERM:WEIGHT", "A wish on labels with its weight ('ssd exists:50').", True, _WHERE
    ),
    RequestOption(
        "near",
        "VM BOUND",
        "Latency at most, bandwidth at least ('db-1 2ms 100mbit', 'group:db 1ms').",
        True,
        _WHERE,
    ),
)


#: Options whose values the shell completes.
_COMPLETED = {
    "numa": complete_from("any", "one", "split"),
    "group": complete_groups,
    "project": complete_projects,
    "strategy": complete_strategies,
    "flavor": complete_flavors,
    "zone": complete_zones,
    "rack": complete_racks,
    "pin": complete_hosts,
    "exclude": complete_hosts,
    "driver": complete_from("qemu", "virtual"),
}


@dataclass(frozen=True, slots=True)
class RequestWords:
    """What was typed about the VM, not yet read."""

    name: str
    words: tuple[tuple[str, str], ...]
    flavor: str = ""  # whose amounts are among the words once it is looked up
    looked_up: bool = False

    def request(self, name: str | None = None) -> "PlaceRequest":
        """Return the request, or refuse what makes no sense."""
        from roost.wire.text.requestwords import parse_request  # help needs none of it

        if self.flavor and not self.looked_up:
            raise InvalidRequest(
                f"--flavor {self.flavor!r} is of a server, and a fleet file is asked",
                hint="Maybe --cpu and --memory.",
            )
        return parse_request(self.words, name or self.name)

    def requests(self, count: int) -> "list[PlaceRequest]":
        """Return so many equal requests, numbered from one."""
        width = len(str(count))
        return [self.request(f"{self.name}-{n:0{width}}") for n in range(1, count + 1)]


def _collect(values: dict[str, Any]) -> RequestWords:
    """Take the request options out of a command's arguments."""
    name, flavor = "vm", ""
    words: list[tuple[str, str]] = []
    for option in REQUEST_OPTIONS:
        value = values.pop(option.parameter, None)
        given = [] if value is None else value if option.many else [value]
        if option.word == "name":
            name = value or name
        elif option.word == "flavor":
            flavor = value or ""
        elif option.word == "x":
            words += [_extended(text) for text in given]
        else:
            words += [(option.word, text) for text in given]
    return RequestWords(name, tuple(words), flavor)


def _extended(text: str) -> tuple[str, str]:
    name, equals, amount = text.partition("=")
    if not equals or not name:
        raise InvalidRequest(f"--x {text!r} is not NAME=AMOUNT", hint="Maybe --x license=1?")
    return f"x.{name}", amount


def _parameter(option: RequestOption) -> inspect.Parameter:
    kind: Any = list[str] if option.many else str
    info = typer.Option(
        f"--{option.word}",
        metavar=option.metavar,
        help=option.help,
        rich_help_panel=option.panel,
        autocompletion=_COMPLETED.get(option.word),
    )
    return inspect.Parameter(
        option.parameter,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[kind | None, info, OWN_PROJECT]
        if option.word == "project"
        else Annotated[kind | None, info],
    )


def takes_request(command: Callable[..., None], *, omit: Sequence[str] = ()) -> Callable[..., None]:
    """Give a command every request option, handed over as `words: RequestWords`."""

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        command(words=_collect(values), **values)

    options = [_parameter(option) for option in REQUEST_OPTIONS if option.word not in omit]
    return with_parameters(wrapper, command, first=options, without="words")


def with_parameters(
    wrapper: Callable[..., None],
    command: Callable[..., None],
    *,
    first: Sequence[inspect.Parameter] = (),
    last: Sequence[inspect.Parameter] = (),
    without: str,
) -> Callable[..., None]:
    """Give a wrapper the command's parameters, more of them, and not the one it fills itself."""
    own = inspect.signature(command, eval_str=True)
    kept = [parameter for name, parameter in own.parameters.items() if name != without]
    # What must be typed comes before options, or Python has no such signature.
    needed = [each for each in kept if each.default is inspect.Parameter.empty]
    optional = [each for each in kept if each.default is not inspect.Parameter.empty]
    parameters = [*needed, *first, *optional, *last]
    wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper
