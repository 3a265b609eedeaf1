"""What likes to follow an action in a drawn history: a train of others, close behind it.

Two faults that strike one host in the right order find mistakes that a thousand faults at random
do not. Each train is a small story; its comment says what it tries to bring about.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Train(Struct, frozen=True):
    """One action that follows; what it does not say is drawn as always."""

    do: str
    whom: str | None = ""  # None: the same; "": anybody; "{vm}": what the first action was on
    after_s: tuple[float, float] = (0.0, 4.0)
    given: dict[str, Any] = {}


def _same(do: str, *after_s: float, **given: Any) -> Train:
    return Train(do, None, _span(after_s), _plain(given))


def _source(do: str, *after_s: float, **given: Any) -> Train:
    return Train(do, "source of {vm}", _span(after_s), _plain(given))


def _target(do: str, *after_s: float, **given: Any) -> Train:
    return Train(do, "target of {vm}", _span(after_s), _plain(given))


def _span(after_s: tuple[float, ...]) -> tuple[float, float]:
    return (after_s[0], after_s[1]) if after_s else (0.0, 4.0)


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    return {key.rstrip("_"): value for key, value in given.items()}


_DEAF = {"up": False, "down": True}
_MUTE = {"up": True, "down": False}
_GONE = {"up": True, "down": True}
_NO_REPORTS = {"chance": 1.0, "loss": 1.0}
_SIMPLE = (
    *((Train(do),) for do in ("cut", "power_off", "kill_agent", "agent_dies_at")),
    *((_same(do),) for do in ("lose_incoming", "cancel", "crash_vm")),
    *((Train(do),) for do in ("kill_plane", "plane_dies_at", "freeze_agent")),
)

#: By the action that comes first; one train of each tuple is drawn.
TRAINS: Mapping[str, tuple[tuple[Train, ...], ...]] = {
    "migrate": (
        *_SIMPLE,
        # It has arrived and nobody hears of it, and its source is gone.
        *(
            (_target("rough", 0.5, 2.5, **_NO_REPORTS, for_=45.0), gone)
            for gone in (
                _source("power_off", 3.0, 5.0, for_=50.0),
                _source("power_off", 3.0, 5.0, for_=50.0),
                _source("cut", 3.0, 5.0, **_GONE, for_=50.0),
                _source("cut", 3.0, 5.0, **_GONE, for_=50.0),
            )
        ),
        # Both are gone.
        (_source("power_off", 2.0, 6.0), _target("power_off", 2.0, 6.0)),
        # What was sent is lost.
        (_same("lose_incoming", 3.0, 4.2),),
        (_target("power_off", 2.5, 4.5), _source("cut", 3.0, 5.0, **_DEAF)),
        # It is taken back when it has left, on a word from before.
        (_source("rough", 0.0, 1.0, chance=0.6, late_s=6.0, for_=9.0), _same("cancel", 1.0, 4.0)),
        (_source("cut", 0.5, 3.0, **_DEAF), _same("cancel", 1.0, 4.0)),
        # The source forgets what it was told last.
        *((_source("forget", 0.0, 1.0),) for _ in range(3)),
    ),
    "freeze_agent": ((_same("cut", 0.5, 5.0, **_GONE, for_=36.0),),),
    "slow": ((_same("cut", 4.0, 12.0, **_MUTE, for_=36.0),), (_same("freeze_agent", 0.0, 5.0),)),
    "cut": ((Train("slow_database", after_s=(5.0, 30.0)),), (_same("kill_agent"),)),
    # What was not written is forgotten.
    "disk_full": (
        (_same("kill_agent", 1.0, 15.0, for_=3.0),),
        (_same("power_off", 1.0, 15.0),),
        (Train("delete"), _same("kill_agent", 5.0, 15.0, for_=3.0)),
        (Train("migrate"), _same("kill_agent", 5.0, 15.0, for_=3.0)),
    ),
    "forget": tuple((Train(do, "{vm}", (0.0, 2.0)),) for do in ("delete", "migrate", "migrate")),
    # A refused VM is started after all, by a host that hears nothing.
    "refuse_vms": (
        (Train("burst", after_s=(0.0, 2.0)), _same("cut", 0.0, 3.0, **_DEAF, for_=40.0)),
        (Train("burst", after_s=(0.0, 1.0)), _same("slow", 0.0, 1.0, seconds=6.0, for_=20.0)),
        (Train("burst", after_s=(0.0, 1.0)), _same("rough", 0.0, 1.0, chance=0.9, for_=20.0)),
    ),
    # Orders and reports that cross each other.
    "stop": ((_same("start", 0.1, 3.0),), (_source("kill_agent", 0.0, 2.0, for_=2.0),)),
    "start": ((_same("stop", 0.1, 3.0),), (_source("rough", 0.0, 0.5, late_s=6.0),)),
    "resize": ((_same("resize", 0.1, 3.0),), (_source("rough", 0.0, 0.5, late_s=6.0),)),
    "rough": ((Train("stop"), Train("start")), (Train("resize"), Train("resize"))),
    "delete": ((_source("disk_full", 0.0, 0.2, for_=20.0), _source("kill_agent", for_=2.0)),),
}

#: Stories about one host and its lease, in a world that is otherwise at peace.
ABOUT_LEASES: tuple[tuple[Train, ...], ...] = (
    # A renewal from before the freeze is read after it, and then nothing more is heard.
    *(
        (
            _same("slow", 0.0, 0.1, seconds=2.0, for_=9.0),
            _same("freeze_agent", 4.0, 7.0, for_=11.5),
            _same("cut", 9.0, 12.0, **_GONE, for_=30.0),
        )
        for _ in range(3)
    ),
    # Renewals come late, and then the host is heard no more.
    *(
        (
            _same("slow", 0.0, 0.1, seconds=6.5, for_=30.0),
            _same("cut", 8.0, 14.0, **_MUTE, for_=30.0),
        )
        for _ in range(2)
    ),
    # A plane that cannot write hears hosts, and nobody else does.
    (Train("lose_database", after_s=(0.0, 3.0), given={"for": 36.0}),),
    # A host comes back to a control plane that is slow to say what has become of its VMs.
    *(
        (
            _same("cut", 0.0, 0.1, **_GONE, for_=26.0),
            _same("kill_agent", 20.0, 22.0, for_=4.5),
            *(
                Train("slow_database", f"plane{n}", (24.0, 26.0), {"seconds": 6.0, "for": 18.0})
                for n in range(3)
            ),
        )
        for _ in range(2)
    ),
    # It is gone for a while, or for good.
    (_same("cut", 0.0, 3.0, for_=30.0),),
    (_same("power_off", 0.0, 3.0, for_=30.0),),
    (_same("kill_agent", 0.0, 3.0, for_=24.0),),
)

_SMALL = {"cpu": 1, "restart": "here"}
#: Stories about a host that refuses VMs and may start them after all when it hears nothing.
ABOUT_REFUSALS: tuple[tuple[Train, ...], ...] = (
    *(
        (
            _same("slow", 0.0, 0.1, seconds=6.5, for_=18.0),
            _same("refuse_vms", 0.0, 0.1, times=3),
            *(Train("create", after_s=(0.5, 2.0), given=_SMALL) for _ in range(5)),
            _same("cut", 6.0, 12.0, **way, for_=40.0),
        )
        for way in (_DEAF, _GONE)
    ),
    (
        _same("refuse_vms", 0.0, 0.1, times=2),
        Train("burst", after_s=(0.5, 2.0)),
        _same("rough", 0.0, 0.1, chance=1.0, loss=0.8, for_=30.0),
        _same("blind", 1.0, 4.0, for_=10.0),
    ),
    (_same("blind", 0.0, 0.1, for_=20.0), Train("burst", after_s=(1.0, 10.0))),
)
