"""Registries of container images: which host an image is of, and when two names are one host.

A login is for one host and goes to no other, so server and worker ask here, never by themselves.
Docker's own registry has several names and is meant where an image names no host.
"""

DOCKER_HUB = "docker.io"
_NAMES_OF_HUB = ("docker.io", "index.docker.io")


def registry_host(text: str) -> str:
    """Return a registry as it is compared: a host, with a port if one is named, or nothing.

    What people write for it is an address as well: `https://registry.example/v2/`.
    """
    host = text.strip().lower()
    for scheme in ("https://", "http://"):
        host = host.removeprefix(scheme)
    host = host.partition("/")[0]
    return DOCKER_HUB if host in _NAMES_OF_HUB else host


def registry_of(image: str) -> str:
    """Return the registry that an image is of, as engines read its name."""
    first, slash, _ = image.partition("/")
    is_host = "." in first or ":" in first or first == "localhost" or first != first.lower()
    return registry_host(first) if slash and is_host else DOCKER_HUB
