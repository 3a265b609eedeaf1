"""The port to whoever rents machines; `tests/conformance/providers.py` holds every one to it.

What a caller may rely on, whatever goes wrong in between:

- `launch` is idempotent by its token: asked again it returns the machine that it made, also when
  the answer to the first asking was lost, and from another process. A token whose machine is gone
  makes no second one: `MachineGone`; but Azure forgets names of what was deleted, so no caller
  may use a token again.
- A machine carries its tags from the moment that it exists, so that `machines` finds it by its
  owner; one that was just made may be missing from a list for a while, and one that is listed is
  never another owner's.
- `terminate` may be asked again, and of a machine that is gone.
- Every error is one of `errors`, and says what to do next.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from roost.model.job import CloudMachine, Launch, MachineType

#: The tags of every rented machine: which control plane it belongs to, and its token.
OWNER_TAG, MACHINE_TAG = "roost-owner", "roost-machine"

#: Machines of one answer that are looked at; an account with more is not ours alone.
MOST_MACHINES = 100_000


class Provider(Protocol):
    """Whoever rents machines."""

    name: str

    async def machine_types(self) -> Sequence[MachineType]:
        """Return what is offered, with prices as they are now."""

    async def launch(self, launch: Launch) -> CloudMachine:
        """Rent a machine, or return the one that this token made."""

    async def describe(self, cloud_id: str) -> CloudMachine:
        """Return one machine as it is now; raises MachineGone once nothing is known of it."""

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        """Return an owner's machines that are not gone, as far as the provider knows by now."""

    async def terminate(self, cloud_id: str) -> None:
        """Give a machine back; no harm if that was done before."""

    async def close(self) -> None:
        """Close connections to the provider; machines stay."""


def tag_of(tags: Iterable[tuple[str, str]], name: str) -> str:
    """Return the value of a tag, empty if there is none."""
    return next((value for each, value in tags if each == name), "")
