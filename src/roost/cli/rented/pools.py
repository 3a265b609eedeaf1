"""`roost pool`: machines that are rented for jobs, and how many there may be."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_from
from roost.cli.words.durations import read_duration
from roost.cli.words.each import delete_each
from roost.cli.words.jobwords import complete_pools
from roost.cli.words.loading import new_group
from roost.cli.words.making import every_page
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.jobs import PoolBody

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the pool.", autocompletion=complete_pools)
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="Names of pools.", autocompletion=complete_pools),
]
TypeOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Machine type that may be rented; repeatable."),
]
RegionOption = Annotated[
    list[str] | None,
    typer.Option("--region", metavar="REGION", help="Region or zone; repeatable."),
]
MinOption = Annotated[
    int | None, typer.Option("--min", metavar="N", min=0, help="So many machines at least.")
]
MaxOption = Annotated[
    int | None, typer.Option("--max", metavar="N", min=0, help="So many machines at most.")
]
CpuOption = Annotated[
    str | None, typer.Option("--max-cpu", metavar="CORES", help="So many cores at most.")
]
BudgetOption = Annotated[
    float | None, typer.Option("--budget", metavar="MONEY", min=0, help="So much an hour at most.")
]
MarketOption = Annotated[
    str | None,
    typer.Option(
        "--market",
        metavar="MARKET",
        help="on_demand or spot.",
        autocompletion=complete_from("on_demand", "spot"),
    ),
]
BaseOption = Annotated[
    int | None,
    typer.Option("--on-demand-base", metavar="N", min=0, help="So many before any is spot."),
]
WarmOption = Annotated[
    int | None, typer.Option("--warm", metavar="N", min=0, help="Idle machines that stay.")
]
GraceOption = Annotated[
    str | None,
    typer.Option("--idle", metavar="LENGTH", help="Idle machines go back after so long (5m)."),
]
OrderingOption = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="ORDER",
        help="fifo, shortest, largest or fair.",
        autocompletion=complete_from("fifo", "shortest", "largest", "fair"),
    ),
]
FitOption = Annotated[
    str | None,
    typer.Option(
        "--fit",
        metavar="FIT",
        help="first, next, best or worst.",
        autocompletion=complete_from("first", "next", "best", "worst"),
    ),
]
KindOption = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="KIND", help="Only jobs of this kind; repeatable."),
]


def _fields(
    types: list[str] | None,
    regions: list[str] | None,
    least: int | None,
    most: int | None,
    max_cpu: str | None,
    budget: float | None,
    market: str | None,
    base: int | None,
    warm: int | None,
    idle: str | None,
    ordering: str | None,
    fit: str | None,
    kinds: list[str] | None,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "types": types,
        "regions": regions,
        "min_machines": least,
        "max_machines": most,
        "max_cpu": max_cpu,
        "budget_micro": None if budget is None else round(budget * 1_000_000),
        "market": market,
        "on_demand_base": base,
        "warm": warm,
        "idle_grace_s": None if idle is None else read_duration(idle),
        "ordering": ordering,
        "fit": fit,
        "kinds": kinds,
    }
    return {name: value for name, value in found.items() if value is not None}


@lists
def list_(session: Session) -> None:
    """List pools, their machines and what waits for them."""
    from roost.cli.show import jobs

    found = session.client.list_pools()
    session.show(found, jobs.pools(found.pools))


@asks_server
def show_(session: Session, name: NameArgument) -> None:
    """Show a pool."""
    _show(session, session.client.get_pool(name))


@asks_server
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new pool.")],
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help="Who rents: local, aws, ...")
    ] = "local",
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="Account to rent with.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Only jobs of this project.")
    ] = None,
    types: TypeOption = None,
    regions: RegionOption = None,
    least: MinOption = None,
    most: MaxOption = None,
    max_cpu: CpuOption = None,
    budget: BudgetOption = None,
    market: MarketOption = None,
    base: BaseOption = None,
    warm: WarmOption = None,
    idle: GraceOption = None,
    ordering: OrderingOption = None,
    fit: FitOption = None,
    kinds: KindOption = None,
) -> None:
    """Make a pool; machines are rented when jobs need them."""
    from roost.wire.jobs import CreatePool

    fields = _fields(
        types, regions, least, most, max_cpu, budget, market, base, warm, idle, ordering, fit,
        kinds,
    )  # fmt: skip
    if project is not None:
        fields["project"] = project
    body = CreatePool(name=name, provider=provider, account=account, **fields)
    _show(session, session.client.create_pool(body))


@asks_server
def change(
    session: Session,
    name: NameArgument,
    types: TypeOption = None,
    regions: RegionOption = None,
    least: MinOption = None,
    most: MaxOption = None,
    max_cpu: CpuOption = None,
    budget: BudgetOption = None,
    market: MarketOption = None,
    base: BaseOption = None,
    warm: WarmOption = None,
    idle: GraceOption = None,
    ordering: OrderingOption = None,
    fit: FitOption = None,
    kinds: KindOption = None,
) -> None:
    """Change a pool; what is not named stays."""
    from roost.wire.jobs import ChangePool

    fields = _fields(
        types, regions, least, most, max_cpu, budget, market, base, warm, idle, ordering, fit,
        kinds,
    )  # fmt: skip
    _show(session, session.client.change_pool(name, ChangePool(**fields)))


@asks_server
def delete(session: Session, name: NamesArgument) -> None:
    """Delete pools that have neither jobs nor machines."""
    delete_each(session, "pool", name, session.client.delete_pool)


@lists
def machines(
    session: Session,
    name: NameArgument,
    every: Annotated[bool, typer.Option("--all", help="Those that went back, too.")] = False,
) -> None:
    """List the machines of a pool."""
    from roost.cli.show import jobs
    from roost.wire.jobs import MachinePage

    ask = partial(session.client.list_machines, name, ended=every, limit=1000)
    found = every_page(lambda after: ask(after=after), lambda page: page.machines)
    session.show(MachinePage(machines=found), jobs.machines(found))


def _show(session: Session, found: "PoolBody") -> None:
    from roost.cli.show import jobs

    session.show(found, jobs.pool(found))


pool = new_group(
    "pool",
    "Machines that are rented for jobs.",
    {
        "list": list_,
        "show": show_,
        "create": create,
        "change": change,
        "delete": delete,
        "machines": machines,
    },
)
