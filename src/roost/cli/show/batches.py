"""Batches that go together or not at all, as tables and sentences for a terminal."""

from collections import Counter
from collections.abc import Mapping

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from roost.cli.show import sentences, tables
from roost.cli.show.remedies import Live
from roost.wire.bodies import (
    AnswersBody,
    PlacementBody,
    RejectionBody,
    RestrictionBody,
    TogetherBody,
)


def placed(found: AnswersBody) -> int:
    """Return how many VMs of a dry run would have a host."""
    return sum(isinstance(each, PlacementBody) for each in found.answers)


def dry_run(found: AnswersBody, asked: int) -> RenderableType:
    """Return where different VMs would go, and what is in the way of the others."""
    count = placed(found)
    how = found.together.how if found.together is not None else "one by one"
    style = "bold green" if count == asked else "bold red"
    parts: list[RenderableType] = [
        Text.assemble((f"{count} of {asked} would be placed", style), f"  ({how})")
    ]
    by_host = Counter(each.host for each in found.answers if isinstance(each, PlacementBody))
    if by_host:
        made = tables.table("host", "VMs", right=("VMs",))
        for host, number in list(by_host.items())[: tables.SOME_ROWS]:
            made.add_row(Text(host), str(number))
        parts += [Text(""), made]
        if len(by_host) > tables.SOME_ROWS:
            parts.append(Text(f"... and {sentences.hosts(len(by_host) - tables.SOME_ROWS)} more"))
    refused = next((each for each in found.answers if isinstance(each, RejectionBody)), None)
    if refused is not None:
        parts += [Text(""), Text(refused.message), *tables.why_not(refused, Live())]
    return Group(*parts, *why_not(found.together))


def why_not(together: TogetherBody | object) -> list[RenderableType]:
    """Return what keeps a batch from fitting together: a conflict, or that nothing is proven.

    It comes as it is, or as a document among the details of an error.
    """
    if isinstance(together, Mapping):
        try:
            together = msgspec.convert(together, TogetherBody)
        except msgspec.ValidationError:  # of another version
            return []
    if not isinstance(together, TogetherBody):
        return []
    if not together.proven:
        return [tables.labelled("not proven", "the search was cut short; there may be a way")]
    if together.conflict is None:
        return []
    conflict = together.conflict
    if not conflict.restrictions:
        return [tables.labelled("conflict", "the amounts alone do not fit, whatever is lifted")]
    least = "the smallest set" if conflict.smallest else "a set"
    sure = "each was put back and is needed" if conflict.checked else "not all of it was checked"
    parts: list[RenderableType] = [
        tables.labelled("conflict", f"all would fit without these ({least}; {sure}):")
    ]
    return [*parts, *(Text(f"  {_restriction(each)}") for each in conflict.restrictions)]


def _restriction(found: RestrictionBody) -> str:
    more = f" and {found.count - 1} more" if found.count > 1 else ""
    of = f" of {found.vms[0]}{more}" if found.vms else ""
    return f"{found.kind} {found.name}{of}"
