"""A user of a world of jobs who lowers limits below what is rented, and raises them again.

It goes on through the storm, and once more without any fault: then the law about what stays beyond
a limit can be checked. It draws from numbers of its own, so that a world without it stays as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

#: What the account of a world may have, and what it is lowered to.
LIMITS: dict[str, Any] = {"max_machines": 6, "max_cpu": 20, "budget_micro": 900_000}
_LOWER: tuple[dict[str, Any], ...] = (
    {"max_machines": 1}, {"max_machines": 3}, {"max_cpu": 4}, {"budget_micro": 100_000},
)  # fmt: skip
#: How long limits are low without any fault.
CALM_S = 100.0


async def lower_limits(
    change: Callable[[dict[str, Any]], Awaitable[None]], random: Random, end: float
) -> None:
    """Lower limits and raise them again until the storm ends, and then once more."""
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(random.uniform(10, 30))
        await change(LIMITS | random.choice(_LOWER))
        await asyncio.sleep(random.uniform(5, 30))
        await change(LIMITS)
    await change(LIMITS | {"max_machines": 2})
    await asyncio.sleep(CALM_S)
    await change(LIMITS)
