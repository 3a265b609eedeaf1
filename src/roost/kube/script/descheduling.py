"""How a scenario sets up the descheduler."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.wire.text.strictyaml import Seconds

Percent = Annotated[int, Meta(ge=0, le=100)]


class Descheduling(Struct, kw_only=True, forbid_unknown_fields=True):
    """How the descheduler is set up."""

    every: Seconds = Seconds(5.0)
    source: Literal["prometheus", "requests"] = "prometheus"
    metric: Literal["cpu", "memory", "cpu-pressure", "memory-pressure"] = "cpu"
    query: str = ""  # instead of a metric: PromQL, one sample of 0 to 1 for each node
    smooth: Seconds = Seconds(0.0)  # mean over so long; 0: the value as it is
    under: Percent = 10  # percent below the mean: may take more
    over: Percent = 10  # percent above the mean: shall give
    per_node: Annotated[int, Meta(ge=1)] = 2
    total: Annotated[int, Meta(ge=1)] = 5

    def __post_init__(self) -> None:
        if self.every <= 0:
            raise ValueError("the descheduler needs some time between its rounds: every")
