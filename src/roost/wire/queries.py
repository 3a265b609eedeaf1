"""What questions over HTTP are narrowed down by: query parameters, one struct per kind of question.

Unknown parameters are refused. `VMQuery` and `HostQuery` are what is left of them for control.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.wire.bodies import Name

Limit = Annotated[int, Meta(ge=1, le=1000, description="How many at most.")]
After = Annotated[str, Meta(max_length=512, description="The `next` of the page before.")]
Label = Annotated[
    str,
    Meta(
        pattern=r"^[^=\x00]{1,253}=[^\x00\n]{0,253}$",
        description="A label as key=value; repeatable.",
    ),
]
State = Literal[
    "pending",
    "starting",
    "running",
    "pausing",
    "paused",
    "stopping",
    "stopped",
    "migrating",
    "failed",
    "unknown",
    "deleting",
]


class Query(Struct, forbid_unknown_fields=True, kw_only=True):
    """No parameters; base of those with some."""


class OneVM(Query):
    """Which project a VM's name belongs to; an id needs none."""

    project: (
        Annotated[Name, Meta(description="Where to look for a name; `default` when left out.")]
        | None
    ) = None


class ExplainVM(OneVM):
    """Which hosts to judge; all when none is named."""

    host: Annotated[list[Name], Meta(max_length=1000, description="Only these; repeatable.")] = []


#: No log or ledger gets there, and every JSON reader can count so far.
MOST_COUNTED = 2**53


class ReadConsole(OneVM):
    """Which piece of a VM's serial log: the last `limit` bytes, or what follows `start`."""

    start: (
        Annotated[
            int,
            Meta(ge=0, le=MOST_COUNTED, description="Offset in bytes; without it, the end."),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=2**20, description="How many bytes at most.")] = 65536


class ListVMs(Query):
    """Which VMs to list."""

    project: Name | None = None
    host: Name | None = None
    state: State | None = None
    name: Name | None = None
    label: Annotated[list[Label], Meta(max_length=64)] = []
    limit: Limit = 100
    after: After | None = None


class ListHosts(Query):
    """Which hosts to list."""

    health: Literal["online", "suspect", "offline"] | None = None
    admin: Literal["open", "cordoned", "draining", "maintenance"] | None = None
    zone: Annotated[str, Meta(max_length=253)] | None = None
    limit: Limit = 100
    after: After | None = None


class CloseHost(Query):
    """Why a host is closed; told until it is open again."""

    reason: Annotated[
        str,
        Meta(
            max_length=253,
            pattern=r"^[^\x00-\x1f\x7f]*\Z",
            description="Why; one line, told until it is open again.",
        ),
    ] = ""


#: Whether metrics tell of every single host as well, not of them, or of nothing else.
Hosts = Literal["yes", "no", "only"]


class ScrapeMetrics(Query):
    """Which metrics to return."""

    hosts: Annotated[
        Hosts, Meta(description="The lines of every host: with the rest, not, or nothing else.")
    ] = "yes"


class ListEvents(Query):
    """Events after a sequence number."""

    since: Annotated[int, Meta(ge=0, le=MOST_COUNTED, description="Only what came after this.")] = 0
    tx: Annotated[
        str, Meta(max_length=64, description="The `tx` of event `since`: refused if it is not.")
    ] = ""
    limit: Limit = 100
    last: (
        Annotated[int, Meta(ge=1, le=1000, description="The newest so many, in place of `limit`.")]
        | None
    ) = None
    vm: Annotated[str, Meta(max_length=64, description="About this VM: its name or id.")] = ""
    project: Annotated[str, Meta(max_length=64, description="Project of the VM's name.")] | None = (
        None
    )
    host: Annotated[str, Meta(max_length=64, description="About this host itself.")] = ""
    kind: Annotated[
        str, Meta(max_length=64, description="Of this kind; `vm.*` is of all that begin so.")
    ] = ""
    since_time: Annotated[
        str, Meta(max_length=40, description="Not before `2026-11-20T08:00:00Z`.")
    ] = ""
    until_time: Annotated[
        str, Meta(max_length=40, description="Before `2026-11-20T08:00:00Z`.")
    ] = ""
    text: Annotated[
        str, Meta(max_length=200, description="With this in note, subject, actor or kind.")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VMQuery:
    """Which VMs; None means any. `after` is the `next` of the page before."""

    project: str | None = None
    host: str | None = None
    state: str | None = None
    name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    limit: int = 100
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQuery:
    """Which hosts; None means any."""

    health: str | None = None
    admin: str | None = None
    zone: str | None = None
    limit: int = 100
    after: str | None = None
