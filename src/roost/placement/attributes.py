"""The part of a request that depends only on what hosts registered with, as one column."""

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.hosts import HostTable
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import HostRequirements
from roost.model.flow import PlaceRequest
from roost.model.hosts import TaintEffect
from roost.placement.filtering import IndexForm
from roost.placement.filters import predicate
from roost.placement.filters.attributes import (
    architecture,
    capabilities,
    driver,
    excluded,
    labels,
    pinned,
    rack,
    site,
    taints,
    zone,
)
from roost.placement.nearness import Nearness
from roost.placement.question import Question
from roost.placement.rules.columns import ATTRIBUTES, BEFOREHAND, RuleColumns

#: Filters whose conjunction a selector keeps as one mark per host.
SELECTING = tuple(
    module.FILTER
    for module in (
        labels,
        taints,
        architecture,
        driver,
        capabilities,
        zone,
        rack,
        site,
        predicate,
    )
)
assert all(each.form is IndexForm.POOL for each in SELECTING)

#: Filters that name hosts.
NAMING = (pinned.FILTER, excluded.FILTER)


def selected(question: Question, rows: Int64Array) -> BoolArray:
    """Return which hosts satisfy every attribute rule of the request but those that name hosts."""
    passes = np.ones(len(rows), np.bool_)
    for each in SELECTING:
        if each.applies(question):
            passes &= each.column(question, rows)
    return passes


def chosen(question: Question, rows: Int64Array) -> BoolArray:
    """Return which of these hosts a search may look at: all but names and amounts decide it."""
    passes = selected(question, rows)
    if question.terms.rules:
        passes &= question.rules.hold(question.terms, rows, BEFOREHAND)
    if question.terms.talks:
        passes &= question.near.holds(question.terms.talks, rows)
    return passes


def without_devices(hosts: HostTable, rows: Int64Array) -> BoolArray:
    """Return which hosts have no device that a VM without one would keep from others."""
    free = hosts.arrays.device_free[rows]
    out: BoolArray = np.all(free < 0, axis=1)
    return out


def not_shunned(question: Question, rows: Int64Array) -> BoolArray:
    """Return which hosts have no prefer-not taint that the VM does not tolerate."""
    hosts = question.fleet.hosts
    tolerations = question.terms.constraints.tolerations
    verdicts = [
        all(
            any(toleration.covers(taint.key, taint.value) for toleration in tolerations)
            for taint in taints
            if taint.effect is TaintEffect.PREFER_NOT
        )
        for taints in hosts.taint_sets.values
    ]
    out: BoolArray = np.array(verdicts, np.bool_)[hosts.taint_set[rows]]
    return out


def eligible(question: Question, rows: Int64Array) -> BoolArray:
    """Return which hosts take VMs and satisfy every attribute rule.

    Their domains are the ones a spread rule compares.
    """
    passes = question.fleet.hosts.arrays.takes[rows] & selected(question, rows)
    if question.terms.rules:
        passes &= question.rules.hold(question.terms, rows, ATTRIBUTES)
    for each in NAMING:
        if each.applies(question):
            passes &= each.column(question, rows)
    return passes


def question(
    fleet: Fleet,
    request: PlaceRequest,
    terms: HostRequirements | None = None,
    rules: RuleColumns | None = None,
    near: Nearness | None = None,
) -> Question:
    """Translate a request into the fleet's numbers; an engine brings the terms that rules bind."""
    demand = fleet.vector(request.demand)
    group_set = fleet.groups.set_number(request.groups)
    groups = fleet.groups.set_members(group_set)
    columns = RuleColumns(fleet) if rules is None else rules
    near = Nearness(fleet) if near is None else near
    return Question(fleet, demand, terms or request.terms, groups, eligible, columns, near)
