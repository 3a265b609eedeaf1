"""`roost token`: tokens of people and programs, and one-time tokens with which agents join."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.show.screen import Output, note, show_text
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_projects, complete_tokens
from roost.cli.words.durations import read_duration
from roost.cli.words.each import delete_each
from roost.cli.words.loading import new_group
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.bodies import TokenBody


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    MEMBER = "member"


ExpiresOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Worthless after this long (30m, 12h, 90d).")
]


@lists
def list_(session: Session) -> None:
    """List tokens, without their secrets."""
    from roost.cli.show import listings

    found = session.client.list_tokens()
    session.show(found, listings.tokens(found.tokens))


@asks_server
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom or what it is for.")],
    role: Annotated[Role, typer.Option(help="What it may do.")] = Role.VIEWER,
    project: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Project of a member.", autocompletion=complete_projects),
    ] = None,
    expires: ExpiresOption = None,
) -> None:
    """Make a token; its secret is shown this once."""
    from roost.wire.bodies import CreateToken

    if (role is Role.MEMBER) != (project is not None):
        hint = "Maybe add --project NAME." if project is None else "Maybe --role member?"
        raise InvalidRequest("a member, and only a member, has a project", hint=hint)
    asked = CreateToken(
        name=name,
        role=role.value,
        project=project,
        expires_in_s=None if expires is None else read_duration(expires),
    )
    _show_secret(session, session.client.create_token(asked))


@asks_server
def join(
    session: Session,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="Good for a host of this name only.")
    ] = None,
    expires: ExpiresOption = "1h",
) -> None:
    """Make a one-time token with which one agent joins."""
    seconds = read_duration(expires or "1h")
    _show_secret(session, session.client.create_join_token(host=host, expires_in_s=seconds))


def _show_secret(session: Session, found: "TokenBody") -> None:
    if session.form is not Output.TABLE:
        session.show(found)
        return
    # The secret alone goes to standard output: TOKEN=$(roost token create ci) just works.
    show_text(found.secret or "")
    until = f"until {found.expires_at}" if found.expires_at else "for good"
    note(f"{found.id}: {found.name}, {found.role}, good {until}; shown this once")


@asks_server
def delete(
    session: Session,
    id_: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Ids of tokens.", autocompletion=complete_tokens),
    ],
) -> None:
    """Make tokens worthless."""
    delete_each(session, "token", id_, session.client.delete_token, "is worthless now")


token = new_group(
    "token",
    "Tokens for people, programs and agents.",
    {"list": list_, "create": create, "delete": delete, "join": join},
)
