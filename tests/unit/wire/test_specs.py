"""The durable spec: what a body means, its text, and what a reader makes of texts of others."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest
from roost.ledger.migrations.asked_bodies import asked_of_spec, spec_of_asked
from roost.model.constraints import NO_CONSTRAINTS
from roost.wire.bodies import CreateVM
from roost.wire.specs import boot_body, constraints_json, nic_body, spec_of
from roost.wire.spectext import SpecUnreadable, read_spec, spec_text

GIB = 2**30
DIGEST = "sha256:" + "a" * 64
FULL: dict[str, Any] = {
    "name": "web", "project": "shop", "labels": {"app": "web"},
    "demand": {
        "cpu": "1500m", "memory": "8GiB", "disk": 40 * GIB, "numa": "one",
        "gpu": {"count": 2, "share_milli": 500, "models": ["a100"], "memory": "16GiB"},
        "extended": {"fpga": 1, "asic": 2},
    },
    "constraints": {
        "labels": [{"key": "ssd"}, {"key": "gen", "operator": "gt", "values": ["3"]}],
        "tolerations": [{}, {"key": "k", "value": "v"}],
        "architecture": "aarch64", "driver": "qemu", "capabilities": ["uefi"],
        "zones": ["a"], "racks": ["r"], "sites": ["s"], "hosts": ["h1"], "not_hosts": ["h2"],
        "preferences": [{"key": "ssd", "weight": 7}],
    },
    "groups": ["old", {"name": "new", "rule": "spread", "scope": "zone", "max_skew": 2}],
    "affinity": [{"selector": {"b": "1", "a": "2"}, "rule": "affinity", "hard": False}],
    "strategy": "best_fit", "priority": 5, "on_no_fit": "queue", "restart": "elsewhere",
    "start": False,
    "boot": {
        "image": {"digest": DIGEST, "url": "https://x/i"}, "kernel": {"digest": DIGEST},
        "cmdline": "quiet", "user_data": "#cloud-config\nsecret: 1",
    },
    "nics": [{}, {"mode": "tap", "bridge": "br0", "mac": "52:54:00:00:00:01"},
             {"forward": ["tcp:1:2"]}],
}  # fmt: skip


def body(**given: Any) -> CreateVM:
    plain = {"name": "web", "demand": {"cpu": 1, "memory": "1GiB"}}
    return msgspec.convert(plain | given, CreateVM)


def test_a_body_with_everything_is_read_back_as_it_was_meant() -> None:
    asked = msgspec.convert(FULL, CreateVM)
    new = spec_of(asked)
    assert read_spec(new.text) == new.spec
    assert spec_text(read_spec(new.text)) == new.text
    assert constraints_json(new.spec) == msgspec.to_builtins(asked.constraints)
    assert boot_body(new.spec.boot) == msgspec.structs.replace(asked.boot, user_data="")
    assert [nic_body(nic) for nic in new.spec.nics] == asked.nics
    assert new.user_data == FULL["boot"]["user_data"]
    assert "secret" not in new.text
    assert new.spec.has_user_data
    assert not new.spec.is_plain


def test_requests_that_differ_in_name_labels_and_spelling_share_one_spec() -> None:
    one = spec_of(body(name="a", labels={"x": "1"}))
    two = spec_of(body(name="b", demand={"cpu": "1000m", "memory": GIB}))
    assert one.text == two.text
    assert one.spec == two.spec
    assert read_spec(one.text) is read_spec(two.text)
    assert one.spec.is_plain


def test_other_user_data_is_another_spec() -> None:
    one, two = (spec_of(body(boot={"user_data": data})) for data in ("a", "b"))
    assert one.spec != two.spec


def test_a_mistake_in_a_body_is_said_at_the_border() -> None:
    with pytest.raises(InvalidRequest, match="finer than a thousandth"):
        spec_of(body(demand={"cpu": 0.00001, "memory": 1}))


@pytest.mark.parametrize("constraints", [None, {}])
def test_no_constraints_are_the_one_object_that_means_none(constraints: Any) -> None:
    new = spec_of(body(constraints=constraints, nics=[{}]))
    assert new.spec.constraints is NO_CONSTRAINTS
    assert read_spec(new.text).constraints is NO_CONSTRAINTS


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("priority",), "high", "priority"),
        (("demand", "cpu_milli"), "4", "cpu_milli"),
        (("demand", "cpu_milli"), -4, "negative"),
        (("demand",), None, "demand"),
        (("constraints", "zones"), "a", "zones"),
        (("constraints", "labels", 0, "operator"), "like", "operator"),
        (("groups", 1, "rule"), "near", "near"),
        (("nics", 1), 7, "nics"),
    ],
)
def test_a_known_field_that_cannot_be_taken_is_named(path: Any, value: Any, said: str) -> None:
    plain = msgspec.json.decode(spec_of(msgspec.convert(FULL, CreateVM)).text)
    put(plain, path, value)
    with pytest.raises(SpecUnreadable, match=said):
        read_spec(msgspec.json.encode(plain).decode())


def put(plain: Any, path: Any, value: Any) -> None:
    for step in path[:-1]:
        plain = plain[step]
    plain[path[-1]] = value


# What a newer release writes


names = st.text("abcdefgh_", min_size=1, max_size=6).map(lambda name: f"x_{name}")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)


def objects_in(plain: Any) -> list[dict[str, Any]]:
    """Return every object of a spec's JSON that has fields, and not keys of its owner's choice."""
    found = []
    if isinstance(plain, dict):
        found.append(plain)
        inner = [value for name, value in plain.items() if name not in ("extended", "selector")]
    else:
        inner = plain if isinstance(plain, list) else []
    return [*found, *(each for value in inner for each in objects_in(value))]


@given(st.data(), st.booleans())
def test_fields_that_a_newer_release_wrote_survive_reading_and_writing(
    data: st.DataObject, full: bool
) -> None:
    asked = msgspec.convert(FULL, CreateVM) if full else body()
    plain = msgspec.json.decode(spec_of(asked).text)
    places = objects_in(plain)
    added = data.draw(
        st.lists(st.tuples(st.integers(0, len(places) - 1), names, values), min_size=1, max_size=5)
    )
    for at, name, value in added:
        places[at][name] = value
    text = msgspec.json.encode(plain).decode()
    spec = read_spec(text)
    assert msgspec.json.decode(spec_text(spec)) == plain
    assert read_spec(spec_text(spec)) == spec


def test_an_unknown_field_in_a_part_that_is_otherwise_at_its_default_stays() -> None:
    text = '{"demand":{"cpu_milli":1,"memory_bytes":1},"constraints":{"rules":["a"]},"priority":0}'
    assert msgspec.json.decode(spec_text(read_spec(text))) == {
        "demand": {"cpu_milli": 1, "memory_bytes": 1},
        "constraints": {"rules": ["a"]},
    }


# What releases before wrote


BODIES = [
    FULL,
    {"name": "a", "demand": {"cpu": 1, "memory": "1GiB"}},
    {"name": "a", "demand": {"cpu": 0.5, "memory": 5, "disk": "1GiB", "gpu": 3}},
    {"name": "a", "demand": {"cpu": 1, "memory": 5, "gpu": 1, "numa": "split"}},
    {"name": "a", "demand": {"cpu": 1, "memory": 5, "gpu": {}}},
    {"name": "a", "demand": {"cpu": 1, "memory": 5}, "constraints": {}, "boot": {}, "nics": [{}]},
    {"name": "a", "demand": {"cpu": 1, "memory": 5}, "boot": {"user_data": "x"}, "start": False},
]


@pytest.mark.parametrize("plain", BODIES, ids=range(len(BODIES)))
def test_a_body_of_an_earlier_ledger_becomes_the_spec_of_that_body(plain: dict[str, Any]) -> None:
    asked = msgspec.convert(plain, CreateVM)
    text, user_data = spec_of_asked(msgspec.json.encode(asked).decode())
    new = spec_of(asked)
    assert (text, user_data) == (new.text, new.user_data)


@pytest.mark.parametrize("plain", BODIES, ids=range(len(BODIES)))
def test_what_is_written_for_an_older_process_means_the_same_body(plain: dict[str, Any]) -> None:
    asked = msgspec.convert({"project": "default"} | plain, CreateVM)
    new = spec_of(asked)
    text = asked_of_spec(asked.name, asked.project, asked.labels, new.text, new.user_data)
    back = msgspec.json.decode(text, type=CreateVM)  # as strict as it is there
    assert (back.name, back.project, back.labels) == (asked.name, asked.project, asked.labels)
    assert spec_of(back) == new


def test_who_created_a_vm_is_kept_beside_what_was_asked() -> None:
    for asked in (body(), msgspec.convert(FULL, CreateVM)):
        new = spec_of(asked, by="ada")
        assert read_spec(new.text).created_by == "ada"
        assert replace(read_spec(new.text), created_by="") == spec_of(asked).spec
