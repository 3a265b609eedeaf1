"""The cheapest mix by trying everything: each job into every open machine, or into a new one."""

from collections.abc import Sequence

from roost.providers.mix.problem import MixLimits, Need, Offer, Vector, fits

NO_LIMITS = MixLimits()


def cheapest(
    needs: Sequence[Need], offers: Sequence[Offer], limits: MixLimits = NO_LIMITS
) -> tuple[int, int]:
    """Return the fewest that are left, by weight, and the least cost at which so few are."""
    jobs = [need for need in needs for _ in range(need.count)]
    best = (sum(job.weight for job in jobs) + 1, 0)

    def allowed(rented: list[int], cost: int) -> bool:
        cpu = sum(o.type.cpu_milli * n for o, n in zip(offers, rented, strict=True))
        return (
            (limits.machines is None or sum(rented) <= limits.machines)
            and (limits.cpu_milli is None or cpu <= limits.cpu_milli)
            and (limits.budget_micro is None or cost <= limits.budget_micro)
            and all(o.most is None or n <= o.most for o, n in zip(offers, rented, strict=True))
        )

    def walk(at: int, rooms: list[Vector], rented: list[int], cost: int, left: int) -> None:
        nonlocal best
        if (left, cost) >= best:
            return
        if at == len(jobs):
            best = (left, cost)
            return
        take = jobs[at].vector
        for room in set(rooms):
            if fits(take, room):
                where = rooms.index(room)
                rest = (room[0] - take[0], room[1] - take[1], room[2] - take[2])
                walk(at + 1, [*rooms[:where], rest, *rooms[where + 1 :]], rented, cost, left)
        for kind, offer in enumerate(offers):
            more = [n + (each == kind) for each, n in enumerate(rented)]
            room, price = offer.vector, cost + offer.price_micro
            if fits(take, room) and allowed(more, price):
                rest = (room[0] - take[0], room[1] - take[1], room[2] - take[2])
                walk(at + 1, [*rooms, rest], more, price, left)
        walk(at + 1, rooms, rented, cost, left + jobs[at].weight)

    walk(0, [], [0] * len(offers), 0, 0)
    return best
