"""`roost flavor`: the amounts of VMs, by name."""

from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_flavors
from roost.cli.words.each import delete_each
from roost.cli.words.loading import new_group
from roost.cli.words.making import DescriptionOption, KeyOption
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.bodies import DemandBody
    from roost.wire.flavors import FlavorBody

FlavorArgument = Annotated[
    str,
    typer.Argument(metavar="FLAVOR", help="Name of the flavor.", autocompletion=complete_flavors),
]
CpuOption = Annotated[
    str | None, typer.Option(metavar="CORES", help="Cores (4, 0.5) or millicores (250m).")
]
MemoryOption = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory (8GiB).")]
DiskOption = Annotated[str | None, typer.Option(metavar="SIZE", help="Disk (40GiB).")]
GpuOption = Annotated[str | None, typer.Option(metavar="N", help="Number of GPUs.")]
GpuModelOption = Annotated[
    list[str] | None, typer.Option(metavar="MODEL", help="GPU models that will do.")
]
GpuShareOption = Annotated[
    str | None, typer.Option(metavar="N", help="Thousandths of each GPU (1 to 1000).")
]
ExtendedOption = Annotated[
    list[str] | None,
    typer.Option("--x", metavar="NAME=N", help="Amount of an extended resource."),
]
NumaOption = Annotated[
    str | None, typer.Option(metavar="MODE", help="any, one (cell) or split (over two).")
]


@lists
def list_(session: Session) -> None:
    """List flavors."""
    from roost.cli.show import flavors

    found = session.client.list_flavors()
    session.show(found, flavors.listed(found.flavors))


@asks_server
def show_(session: Session, flavor: FlavorArgument) -> None:
    """Show a flavor."""
    _show(session, session.client.get_flavor(flavor))


@asks_server
def create(
    session: Session,
    flavor: Annotated[str, typer.Argument(metavar="FLAVOR", help="Name of the new flavor.")],
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    gpu: GpuOption = None,
    gpu_model: GpuModelOption = None,
    gpu_share: GpuShareOption = None,
    extended: ExtendedOption = None,
    numa: NumaOption = None,
    description: DescriptionOption = None,
    key: KeyOption = None,
) -> None:
    """Create a flavor: the amounts of VMs, by name."""
    from roost.wire.flavors import CreateFlavor

    words = _words(cpu, memory, disk, gpu, gpu_model, gpu_share, extended, numa)
    body = CreateFlavor(name=flavor, demand=_demand(flavor, words), description=description or "")
    _show(session, session.client.create_flavor(body, key=key))


@asks_server
def set_(
    session: Session,
    flavor: FlavorArgument,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    gpu: GpuOption = None,
    gpu_model: GpuModelOption = None,
    gpu_share: GpuShareOption = None,
    extended: ExtendedOption = None,
    numa: NumaOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a flavor for VMs to come; what is not named stays, and so do VMs that are there."""
    from msgspec import UNSET

    from roost.wire.flavors import ChangeFlavor
    from roost.wire.text.requestwords import write_demand
    from roost.wire.translate import demand_of

    given = _words(cpu, memory, disk, gpu, gpu_model, gpu_share, extended, numa)
    if not given and description is None:
        raise InvalidRequest("nothing to set", hint="Maybe --cpu, --memory or --description.")
    demand: DemandBody | None = None
    if given:
        had = demand_of(session.client.get_flavor(flavor).demand)
        before = [text.partition("=") for text in write_demand(had)]
        named = {word for word, _ in given}
        kept = [(word, value) for word, _, value in before if word not in named]
        demand = _demand(flavor, given + kept)
    change = ChangeFlavor(
        demand=UNSET if demand is None else demand,
        description=UNSET if description is None else description,
    )
    _show(session, session.client.change_flavor(flavor, change))


@asks_server
def delete(
    session: Session,
    flavor: Annotated[
        list[str],
        typer.Argument(
            metavar="FLAVOR...", help="Names of flavors.", autocompletion=complete_flavors
        ),
    ],
) -> None:
    """Delete flavors; VMs that were created with one keep their amounts."""
    delete_each(session, "flavor", flavor, session.client.delete_flavor)


def _words(
    cpu: str | None,
    memory: str | None,
    disk: str | None,
    gpu: str | None,
    gpu_model: list[str] | None,
    gpu_share: str | None,
    extended: list[str] | None,
    numa: str | None,
) -> list[tuple[str, str]]:
    one = {"cpu": cpu, "memory": memory, "disk": disk, "gpu": gpu, "gpu-share": gpu_share}
    words = [(word, value) for word, value in (one | {"numa": numa}).items() if value is not None]
    words += [("gpu-model", model) for model in gpu_model or []]
    for text in extended or []:
        name, equals, amount = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--x {text!r} is not NAME=AMOUNT", hint="Maybe --x license=1?")
        words.append((f"x.{name}", amount))
    return words


def _demand(flavor: str, words: list[tuple[str, str]]) -> "DemandBody":
    from roost.cli.words.asking import demand_body
    from roost.wire.text.requestwords import parse_demand

    return demand_body(parse_demand(words, flavor, "flavor"))


def _show(session: Session, found: "FlavorBody") -> None:
    from roost.cli.show import flavors

    session.show(found, flavors.detail(found))


flavor = new_group(
    "flavor",
    "Flavors: the amounts of VMs, by name.",
    {"list": list_, "show": show_, "create": create, "set": set_, "delete": delete},
)
