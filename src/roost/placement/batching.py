"""Many requests as columns: what a batch takes and gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roost.base.errors import InvalidRequest
from roost.fleet.fleet import Fleet
from roost.fleet.layout import UNKNOWN, Int32Array, Int64Array
from roost.fleet.outlook import expected_vector
from roost.model.constraints import NO_TERMS
from roost.model.flow import PlaceRequest
from roost.model.outlook import NOTHING_EXPECTED


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """K requests in the fleet's numbers; `terms` and `group_set` point into the fleet's tables."""

    demand: Int64Array  # [K, resources]
    terms: Int32Array
    group_set: Int32Array
    seed: Int64Array  # [K], or empty when no strategy draws
    expected: Int64Array | None = None  # [K, 4] as in the VM columns; None: nothing is known

    def __post_init__(self) -> None:
        lengths = {len(self.demand), len(self.terms), len(self.group_set)}
        if len(lengths) != 1 or len(self.seed) not in (0, len(self.terms)):
            raise InvalidRequest(f"request columns have different lengths: {sorted(lengths)}")
        if self.expected is not None and self.expected.shape != (len(self.terms), len(UNKNOWN)):
            raise InvalidRequest(f"expectations have the wrong shape {self.expected.shape}")
        if (self.demand < 0).any():
            raise InvalidRequest("a demand in the batch is negative")

    def __len__(self) -> int:
        return len(self.terms)

    def expectations(self) -> Int64Array:
        """Return what is expected of each VM; unknown where nothing was said."""
        if self.expected is not None:
            return self.expected
        return np.full((len(self), len(UNKNOWN)), UNKNOWN, np.int64)

    def part(self, start: int, end: int) -> "RequestColumns":
        """Return the requests from start to end."""
        seed = self.seed[start:end] if len(self.seed) else self.seed
        expected = None if self.expected is None else self.expected[start:end]
        return RequestColumns(
            self.demand[start:end], self.terms[start:end], self.group_set[start:end], seed, expected
        )


@dataclass(frozen=True, slots=True)
class DecisionColumns:
    """K answers; row -1 means that no host fitted."""

    row: Int32Array
    score: Int64Array
    devices: Int64Array
    cells: Int64Array
    first_vm: int  # number of the first VM placed; the placed ones follow in request order


def columns_of(
    fleet: Fleet,
    requests: Sequence[PlaceRequest],
    seeds: list[int],
    terms_number: Callable[[PlaceRequest], int] | None = None,
) -> RequestColumns:
    """Translate requests into the fleet's numbers; an engine knows the terms that rules bind."""
    places: dict[int, int] = {}  # requests often share one demand
    vectors: list[Int64Array] = []
    chosen = []
    for request in requests:
        place = places.get(id(request.demand))
        if place is None:
            place = places[id(request.demand)] = len(vectors)
            vectors.append(fleet.vector(request.demand))
        chosen.append(place)
    kinds = np.zeros((len(vectors), len(fleet.hosts.resources)), np.int64)
    for place, vector in enumerate(vectors):  # one that was made before a resource came is shorter
        kinds[place, : len(vector)] = vector
    demand = kinds[np.array(chosen, np.int64)]
    terms, groups = fleet.terms, fleet.groups
    if terms_number is None:
        numbers = [0 if r.terms is NO_TERMS else terms.number(r.terms) for r in requests]
    else:
        numbers = [terms_number(request) for request in requests]
    return RequestColumns(
        demand,
        np.array(numbers, np.int32),
        np.array([groups.set_number(r.groups) if r.groups else 0 for r in requests], np.int32),
        np.array(seeds, np.int64),
        _expected_of(requests),
    )


def _expected_of(requests: Sequence[PlaceRequest]) -> Int64Array | None:
    if all(request.expected is NOTHING_EXPECTED for request in requests):
        return None
    return np.array([expected_vector(request.expected) for request in requests], np.int64)
