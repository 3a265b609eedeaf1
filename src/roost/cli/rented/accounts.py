"""`roost account`: with whose credentials machines are rented, and how many at once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from roost.base.errors import InvalidRequest
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_accounts
from roost.cli.words.each import delete_each
from roost.cli.words.jobwords import pairs
from roost.cli.words.loading import new_group
from roost.cli.words.session import Session, asks_server

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the account.", autocompletion=complete_accounts),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="Names of accounts.", autocompletion=complete_accounts),
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Region, endpoint, ...; repeatable."),
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials", metavar="FILE", help="JSON object of the credentials; sealed when kept."
    ),
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


def _fields(
    option: list[str] | None,
    credentials: Path | None,
    most: int | None,
    max_cpu: str | None,
    budget: float | None,
) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = {
        "options": pairs(option, "option") or None,
        "max_machines": most,
        "max_cpu": max_cpu,
        "budget_micro": None if budget is None else round(budget * 1_000_000),
    }
    if credentials is not None:
        try:
            found["credentials"] = msgspec.json.decode(
                credentials.read_bytes(), type=dict[str, str]
            )
        except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
            # Nothing of what the file says may stand in an error.
            raise InvalidRequest(
                f"{str(credentials)!r} cannot be read as a JSON object of texts"
            ) from error
    return {name: value for name, value in found.items() if value is not None}


@lists
def list_(session: Session) -> None:
    """List accounts; credentials are never shown."""
    from roost.cli.show import jobs

    found = session.client.list_accounts()
    session.show(found, jobs.accounts(found.accounts))


@asks_server
def show_(session: Session, name: NameArgument) -> None:
    """Show an account; credentials are never shown."""
    from roost.cli.show import jobs

    found = session.client.get_account(name)
    session.show(found, jobs.accounts([found]))


@asks_server
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new account.")],
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help="Who rents: aws, azure, roost.")
    ],
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Whose account it is.")
    ] = None,
    option: OptionOption = None,
    credentials: CredentialsOption = None,
    most: MaxOption = None,
    max_cpu: CpuOption = None,
    budget: BudgetOption = None,
) -> None:
    """Make an account with a provider."""
    from roost.cli.show import jobs
    from roost.wire.jobs import CreateAccount

    fields = _fields(option, credentials, most, max_cpu, budget)
    body = CreateAccount(name=name, provider=provider, project=project, **fields)
    found = session.client.create_account(body)
    session.show(found, jobs.accounts([found]))


@asks_server
def change(
    session: Session,
    name: NameArgument,
    option: OptionOption = None,
    credentials: CredentialsOption = None,
    most: MaxOption = None,
    max_cpu: CpuOption = None,
    budget: BudgetOption = None,
) -> None:
    """Change an account; what is not named stays."""
    from roost.cli.show import jobs
    from roost.wire.jobs import ChangeAccount

    fields = _fields(option, credentials, most, max_cpu, budget)
    found = session.client.change_account(name, ChangeAccount(**fields))
    session.show(found, jobs.accounts([found]))


@asks_server
def delete(session: Session, name: NamesArgument) -> None:
    """Delete accounts that no pool uses."""
    delete_each(session, "account", name, session.client.delete_account)


account = new_group(
    "account",
    "With whose credentials machines are rented.",
    {"list": list_, "show": show_, "create": create, "change": change, "delete": delete},
)
