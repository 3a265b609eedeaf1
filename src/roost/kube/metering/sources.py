"""What the exporter shows and acts upon, whichever it is: a cluster, or roost's own fleet."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from roost.base.errors import RoostError
from roost.kube.metering.loaded import Loaded
from roost.kube.metering.usage import Usage


class Health(Struct, kw_only=True):
    """Whether what is shown is true, and what it is of."""

    status: str = "ok"  # or "behind": the watch is broken
    source: str
    why: str = ""  # it is not Kubernetes
    server: str = ""
    namespace: str = ""  # whose pods are read; empty: all
    view_age_s: float = 0.0  # at most so much is unknown of what happened since
    trouble: str = ""
    nodes: int = 0
    pods: int = 0
    vms: int = 0
    lists: dict[str, int] = {}  # whole lists asked for so far, by resource
    avoiding: list[str] = []  # nodes that carry our soft taint


class Asked(Struct, kw_only=True, forbid_unknown_fields=True):
    """One move that somebody would like."""

    vm_id: str
    from_node: str = ""
    to_node: str = ""  # empty: anywhere else


class Moved(Struct, kw_only=True):
    """What became of it."""

    vm_id: str
    from_node: str
    wanted: str | None
    accepted: bool
    chosen: str | None = None  # by the scheduler, when it is known
    phase: str = ""
    error: dict[str, Any] | None = None

    @classmethod
    def refused(cls, asked: Asked, error: RoostError) -> "Moved":
        """Return the answer to a move that cannot be."""
        return cls(
            vm_id=asked.vm_id,
            from_node=asked.from_node,
            wanted=asked.to_node or None,
            accepted=False,
            error=cls.told(error),
        )

    @staticmethod
    def told(error: RoostError) -> dict[str, Any]:
        """Return what is wrong with one move, as an answer that is one error would say it."""
        told: Any = error.as_json()["error"]
        return dict(told)


class Landed(Struct, kw_only=True):
    """Where the VMs of a scenario went."""

    scenario: str
    source: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    placed: dict[str, str] = {}  # VM to node
    pending: dict[str, str] = {}  # VM to the reason
    missing: list[str] = []  # VMs that nobody has made a pod for
    hint: str = ""


class Source(ABC):
    """Where nodes and VMs come from."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.usage = Usage()

    @abstractmethod
    async def start(self) -> None:
        """Begin, and return when everything is known once."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the source and its watches."""

    @abstractmethod
    async def refresh(self) -> None:
        """Read all objects anew."""

    @abstractmethod
    def health(self) -> Health:
        """Return the health of the source."""

    @abstractmethod
    async def load(self, loaded: Loaded, wait_s: float) -> Landed:
        """Make the VMs those of a scenario; return when they have nodes, or after this time."""

    @abstractmethod
    async def move(self, asked: Sequence[Asked], wait_s: float) -> list[Moved]:
        """Ask for moves; return when it is known where each goes, or after this time."""

    def extra_lines(self) -> list[str]:
        """Return what Prometheus shall read beside the nodes."""
        return []
