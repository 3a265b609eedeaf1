"""Flavors in both clients: their calls and methods."""

from roost.client.binding import Method
from roost.client.calls import Call, nothing, path, reads
from roost.wire import flavors as wire

_read_flavor = reads(wire.FlavorBody)


def list_flavors() -> Call[wire.FlavorPage]:
    """Return all flavors by name."""
    return Call("GET", path("flavors"), reads(wire.FlavorPage))


def get_flavor(name: str) -> Call[wire.FlavorBody]:
    """Return a flavor."""
    return Call("GET", path("flavors", name), _read_flavor)


def create_flavor(flavor: wire.CreateFlavor, *, key: str | None = None) -> Call[wire.FlavorBody]:
    """Create a flavor."""
    return Call("POST", path("flavors"), _read_flavor, body=flavor, creates=True, key=key)


def change_flavor(name: str, change: wire.ChangeFlavor) -> Call[wire.FlavorBody]:
    """Change a flavor for VMs to come; what is left out stays."""
    return Call("POST", path("flavors", name, "change"), _read_flavor, body=change)


def delete_flavor(name: str) -> Call[None]:
    """Delete a flavor; VMs keep their amounts."""
    return Call("DELETE", path("flavors", name), nothing)


class FlavorMethods:
    """What clients do with flavors."""

    list_flavors = Method(list_flavors)
    get_flavor = Method(get_flavor)
    create_flavor = Method(create_flavor)
    change_flavor = Method(change_flavor)
    delete_flavor = Method(delete_flavor)
