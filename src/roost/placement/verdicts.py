"""Every filter's verdict on every host, and the amounts that are missing."""

from dataclasses import dataclass

import numpy as np

from roost.fleet.layout import SLOTS, BoolArray, Int64Array
from roost.model.flow import ReasonCount, Shortage
from roost.model.reasons import RESOURCE_REASONS, Reason
from roost.model.resources import NumaMode
from roost.placement.filtering import Filter
from roost.placement.partfit import cells_fit, enough_devices
from roost.placement.question import Question
from roost.placement.registry import FILTERS

#: Reasons whose cause is an amount that can be freed.
AMOUNTS = frozenset(
    {Reason.MAX_VMS, Reason.CPU, Reason.MEMORY, Reason.DISK, Reason.EXTENDED, Reason.HELD}
)


#: Parts of one rule that a refusal names; those beyond are counted together.
MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The filters that applied, and for each of them which hosts failed."""

    question: Question
    rows: Int64Array
    filters: tuple[Filter, ...]
    failed: BoolArray  # [filters, hosts]

    def counts(self) -> tuple[ReasonCount, ...]:
        """Return how many hosts each reason refused, in the order of the filters.

        Of one rule with many parts, only some are named.
        """
        if not self.filters or not len(self.rows):
            return ()
        refused = self.failed.any(axis=0)
        first = np.bincount(self.failed.argmax(axis=0)[refused], minlength=len(self.filters))
        total = np.count_nonzero(self.failed, axis=1)
        told: list[ReasonCount] = []
        parts: dict[tuple[Reason, str], list[int]] = {}
        for index, each in enumerate(self.filters):
            if not total[index]:
                continue
            same = parts.setdefault((each.reason, each.rule), [])
            same.append(index)
            if not each.rule or len(same) <= MOST_PARTS:
                told.append(
                    ReasonCount(
                        each.reason, int(first[index]), int(total[index]), each.rule, each.part
                    )
                )
        for (reason, rule), same in parts.items():
            more = same[MOST_PARTS:] if rule else []
            if more:
                hosts = int(np.count_nonzero(self.failed[more].any(axis=0)))
                text = f"{len(more)} more parts"
                told.append(ReasonCount(reason, int(first[more].sum()), hosts, rule, text))
        return tuple(told)

    def passing_all_but(self, reasons: frozenset[Reason]) -> BoolArray:
        """Return which hosts fail nothing beside these reasons."""
        others = [index for index, each in enumerate(self.filters) if each.reason not in reasons]
        passing: BoolArray = ~np.any(self.failed[others], axis=0)
        return passing

    def reasons(self, index: int) -> tuple[Reason, ...]:
        """Return why the index-th host was refused, each reason once."""
        failed = self.failed[:, index].tolist()
        return tuple(
            dict.fromkeys(
                each.reason for each, fails in zip(self.filters, failed, strict=True) if fails
            )
        )

    def refused_by_one_rule(self) -> frozenset[str]:
        """Return the rules without which some host would be refused by nothing."""
        refusing = self.failed.sum(axis=0)
        found = set()
        for rule in {each.rule for each in self.filters} - {""}:
            own = [index for index, each in enumerate(self.filters) if each.rule == rule]
            alone = self.failed[own].sum(axis=0)
            if ((alone == refusing) & (refusing > 0)).any():
                found.add(rule)
        return frozenset(found)


def judge_hosts(question: Question, rows: Int64Array | None = None) -> Verdicts:
    """Ask every filter about every registered host, or about some of them."""
    rows = question.fleet.present_rows() if rows is None else rows
    filters: tuple[Filter, ...] = ()
    for each in FILTERS:
        if each.applies(question):
            filters += (each,) if each.split is None else each.split(question)
    failed = np.zeros((len(filters), len(rows)), np.bool_)
    for index, each in enumerate(filters):
        failed[index] = ~each.column(question, rows)
    return Verdicts(question, rows, filters, failed)


def amounts_short(question: Question, rows: Int64Array) -> Int64Array:
    """Return [hosts, resources + 1] missing amounts; the last column is missing VM slots."""
    hosts = question.fleet.hosts
    width = len(question.demand)
    need = np.append(question.demand, 1)
    columns = [*range(width), len(hosts.resources) + SLOTS]
    short = np.maximum(0, need - hosts.arrays.headroom[rows][:, columns])
    return np.where(need > 0, short, 0)


def shortages(question: Question, row: int) -> tuple[Shortage, ...]:
    """Return what one host is missing, amounts first, then devices and NUMA cells."""
    hosts = question.fleet.hosts
    rows = np.array([row])
    missing = []
    short = amounts_short(question, rows)[0]
    for column, name in enumerate(hosts.resources.values[: len(question.demand)]):
        if short[column]:
            need = int(question.demand[column])
            missing.append(Shortage(name, need, need - int(short[column])))
    if short[-1]:
        missing.append(Shortage("vms", 1, 1 - int(short[-1])))
    for each in FILTERS:
        if not each.applies(question) or each.column(question, rows)[0]:
            continue
        if each.reason in (Reason.DEVICE, Reason.HELD) and _lacks_devices(question, rows)[0]:
            assert question.terms.devices is not None
            missing.append(
                Shortage("devices", question.terms.devices.count, suitable_devices(question, row))
            )
        if each.reason in (Reason.NUMA, Reason.HELD) and _lacks_cells(question, rows)[0]:
            cells = 1 if question.terms.numa is NumaMode.ONE_CELL else 2
            missing.append(Shortage("numa_cells", cells, 0))
    return tuple(missing)


def _lacks_devices(question: Question, rows: Int64Array) -> BoolArray:
    """Say where devices are missing, beside what is held of them for others."""
    if question.terms.devices is None:
        return np.zeros(len(rows), np.bool_)
    return ~enough_devices(question, rows, question.fleet.hosts.arrays.device_free[rows])


def _lacks_cells(question: Question, rows: Int64Array) -> BoolArray:
    """Say where NUMA cells are missing, beside what is held of them for others."""
    if question.terms.numa is NumaMode.ANY:
        return np.zeros(len(rows), np.bool_)
    return ~cells_fit(question, question.fleet.hosts.arrays.cell_free[rows])


def suitable_devices(question: Question, row: int) -> int:
    """Return how many devices of a host suit the demand."""
    ask = question.terms.devices
    assert ask is not None
    arrays, models = question.fleet.hosts.arrays, question.fleet.hosts.device_models
    wanted = {models.find(model) for model in ask.models}
    return sum(
        1
        for free, (model, memory, shareable) in zip(
            arrays.device_free[row].tolist(), arrays.device_info[row].tolist(), strict=True
        )
        if free >= ask.milli
        and memory >= ask.memory_bytes
        and (not wanted or model in wanted)
        and (shareable or ask.milli == 1000)
    )


def nearest(verdicts: Verdicts) -> tuple[int, int] | None:
    """Return the row that only amounts, devices or cells refuse and that misses least.

    And how many hosts miss exactly the same. Distance is the sum of missing shares of the demand,
    missing devices as a share of their count; missing NUMA cells count as one whole demand.
    """
    candidates = np.flatnonzero(verdicts.passing_all_but(RESOURCE_REASONS))
    if not len(candidates):
        return None
    question = verdicts.question
    rows = verdicts.rows[candidates]
    short = amounts_short(question, rows)
    need = np.append(question.demand, 1)
    distance = (short / np.maximum(need, 1)).sum(axis=1)
    for index, each in enumerate(verdicts.filters):
        failed = verdicts.failed[index, candidates]
        if each.reason in (Reason.NUMA, Reason.HELD):
            distance += failed & _lacks_cells(question, rows)
        if each.reason in (Reason.DEVICE, Reason.HELD) and question.terms.devices is not None:
            count = question.terms.devices.count
            for position in np.flatnonzero(failed & _lacks_devices(question, rows)).tolist():
                distance[position] += 1 - suitable_devices(question, int(rows[position])) / count
    best = int(np.argmin(distance))  # the first, so the lowest host number among equals
    same = (short == short[best]).all(axis=1) & (distance == distance[best])
    return int(rows[best]), int(np.count_nonzero(same))
