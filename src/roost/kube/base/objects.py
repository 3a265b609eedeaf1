"""Objects as the API server writes them; no client is needed to read one."""

from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for objects of the whole cluster) and name


def key_of(item: Object) -> Key:
    """Return what names an object within its resource."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def version_of(item: Object) -> int:
    """Return how far an object has come: of two states of one, the later has the larger."""
    # Kubernetes says since 1.35 that versions of one resource are numbers that grow.
    return int(item["metadata"]["resourceVersion"])
