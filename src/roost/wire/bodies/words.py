"""The words of bodies: names, sizes, labels, and what a request and a reply are."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

# "$" alone would also match before a line break at the end.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$(?!\n)")]
ProjectName = Name
#: Of a body that names no project: a member's own, else `default`.
OWN_PROJECT = ""
DEFAULT_PROJECT = "default"
Moment = Annotated[
    str, Meta(max_length=40, description="A moment, such as `2026-11-20T08:00:00Z`.")
]
Amount = Annotated[int, Meta(ge=0, le=2**48)]
Size = Annotated[int, Meta(ge=0, le=2**48)] | Annotated[str, Meta(max_length=32)]
Cores = (
    Annotated[int, Meta(ge=0, le=2**38)]
    | Annotated[float, Meta(ge=0, le=2**38)]
    | Annotated[str, Meta(max_length=32)]
)
Text = Annotated[str, Meta(max_length=253)]
Words = Annotated[list[Text], Meta(max_length=256)]
#: The key of a label that an operator sets: selectors can name it.
LabelKey = Annotated[str, Meta(pattern=r"^[^=,!\s]{1,253}$(?!\n)")]
#: A label is one line, and `=` ends its key.
Labels = dict[
    Annotated[str, Meta(pattern=r"^[^=\n]{1,253}$(?!\n)")],
    Annotated[str, Meta(pattern=r"^[^\n]{0,253}$(?!\n)")],
]
HostLabels = dict[LabelKey, Annotated[str, Meta(pattern=r"^[^\n]{0,253}$(?!\n)")]]
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Weight = Annotated[int, Meta(ge=1, le=100)]

#: VMs in one POST /vms:batch.
MOST_IN_BATCH = 10_000

Role = Literal["viewer", "operator", "admin", "member"]


class Request(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A body that a caller sends."""


class Reply(Struct, kw_only=True):
    """A body that the server sends."""
