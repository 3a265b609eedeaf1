"""Histories that somebody wrote: what chance would take long to bring about, or has brought about.

Each takes the seed of everything that chance still decides in it: delays, and who is placed where.
"""

from collections.abc import Callable
from random import Random

from roost.sim.histories.history import Action, History


def _history(seed: int, *actions: Action, restart: str) -> History:
    vms = [Action(0.0, "create", f"vm{n}", {"cpu": 1, "restart": restart}) for n in range(2)]
    last = Action(90.0, "create", "last")
    return History(seed, hosts=3, planes=1, calm_s=120.0, actions=[*vms, *actions, last])


def refused_and_deaf(seed: int) -> History:
    """A host refuses a VM, hears nothing more, and starts it after all when it tries again."""
    return _history(
        seed,
        Action(5.0, "slow", "h2", {"seconds": 6.5, "for": 20.0}),
        Action(5.0, "refuse_vms", "h2", {"times": 1}),
        Action(6.0, "create", "web", {"cpu": 1, "restart": "here"}),
        Action(9.0 + seed % 8 / 2, "cut", "h2", {"up": False, "down": True, "for": 45.0}),
        restart="here",
    )


def back_to_a_slow_ledger(seed: int) -> History:
    """A host was gone for long; it is renewed before it hears what has become of its VMs."""
    return _history(
        seed,
        Action(10.0, "cut", "h0", {"up": True, "down": True, "for": 28.0}),
        Action(30.0, "kill_agent", "h0", {"for": 8.0 + seed % 8 / 4}),
        Action(36.0, "slow_database", "plane0", {"seconds": 6.0, "for": 25.0}),
        restart="elsewhere",
    )


def forgotten_on_a_full_disk(seed: int) -> History:
    """An agent that can write nothing sends a VM away, is killed, and begins with an old list."""
    return _history(
        seed,
        Action(10.0, "forget", "source of vm0", {"after": 3.3 + seed % 8 / 2}),
        Action(10.2, "migrate", "vm0"),
        restart="here",
    )


def deaf_after_a_freeze(seed: int) -> History:
    """A stopped agent reads a renewal when it goes on, and is cut off then."""
    return _history(
        seed,
        Action(8.0, "slow", "h0", {"seconds": 2.0, "for": 9.0}),
        Action(12.0 + seed % 8 / 4, "freeze_agent", "h0", {"for": 11.5}),
        Action(18.0, "cut", "h0", {"up": True, "down": True, "for": 40.0}),
        restart="elsewhere",
    )


def full_beside_an_owner(seed: int) -> History:
    """Room is kept for an owner, who draws on a part of it; others take all that they can get."""
    kept = Action(4.0, "reserve", "kept-a", {"cpu": 3, "units": 1})
    owner = Action(8.0, "create", "owner", {"cpu": 1, "reservation": "kept-a"})
    others = [Action(12.0 + n, "create", f"other{n}", {"cpu": 1}) for n in range(10)]
    slow = Action(11.0, "slow", "h0", {"seconds": 1.0, "for": 5.0})
    actions = [kept, owner, slow, *others]
    return History(seed, hosts=2, planes=1, calm_s=60.0, actions=actions)


def cards_at_once(seed: int) -> History:
    """Of two cards one is reserved at one process while another one gives cards to VMs."""
    random = Random(seed)
    actions = [Action(11.0, "slow", "h0", {"seconds": 1.0, "for": 5.0})]
    for turn in range(16):
        at = 4.0 + 4 * turn
        asked = {"cpu": 1, "gpu": 1, "units": 1}
        actions.append(Action(at, "reserve", f"card-{turn}", asked))
        for vm in ("a", "b"):
            then = round(at + random.uniform(0.0, 0.06), 4)
            actions.append(Action(then, "create", f"{vm}{turn}", {"gpu": 1}))
        actions += [Action(at + 2, "delete", f"{vm}{turn}") for vm in ("a", "b")]
        actions.append(Action(at + 2, "unreserve", f"card-{turn}"))
    actions.sort(key=lambda action: action.at)
    return History(seed, hosts=2, planes=2, cards=1, calm_s=60.0, actions=actions)


#: A mistake, by name, and a history that somebody wrote to bring it out.
WRITTEN: dict[str, Callable[[int], History]] = {
    "no waiting for the refuser": refused_and_deaf,
    "old list": back_to_a_slow_ledger,
    "stale generation": forgotten_on_a_full_disk,
    "lease counted from receipt": deaf_after_a_freeze,
    "drawn twice": full_beside_an_owner,
    "cards given away": cards_at_once,
}
