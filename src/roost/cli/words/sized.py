"""`--flavor`: amounts are looked up at the server, which is then asked with the flavor's name."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roost.base.errors import InvalidRequest
from roost.cli.words.options import RequestWords
from roost.cli.words.session import Session

if TYPE_CHECKING:
    from roost.model.flow import PlaceRequest

#: Words that say amounts, which a flavor has its own of.
_AMOUNTS = ("cpu", "memory", "disk", "gpu", "gpu-share", "gpu-model", "gpu-memory", "numa")


def sized(session: Session, words: RequestWords) -> RequestWords:
    """Return words with the amounts of the flavor they name; others are as they were."""
    if not words.flavor or words.looked_up:
        return words
    from roost.wire.text.requestwords import write_demand
    from roost.wire.translate import demand_of

    for word, _ in words.words:
        if word in _AMOUNTS or word.startswith("x."):
            raise InvalidRequest(
                f"--flavor {words.flavor!r} says all amounts, and --{word.partition('.')[0]} "
                "another one",
                hint=f"Maybe leave --{word.partition('.')[0]} out.",
            )
    found = session.client.get_flavor(words.flavor)
    amounts = [text.partition("=") for text in write_demand(demand_of(found.demand))]
    told = tuple((word, value) for word, _, value in amounts)
    return replace(words, words=told + words.words, looked_up=True)


def vm_said(words: RequestWords, request: "PlaceRequest") -> dict[str, Any]:
    """Return the fields of `CreateVM` for a request; a flavor goes by its name."""
    from roost.cli.words.asking import vm_fields

    fields = vm_fields(request)
    if words.flavor:
        del fields["demand"]
        fields["flavor"] = words.flavor
    return fields
