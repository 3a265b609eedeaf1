"""Objects as the API server writes them; no client is needed to read one."""

from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]  # namespace and name


def key_of(pod: Object) -> Key:
    """Return what names a pod."""
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
