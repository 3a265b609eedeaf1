"""What was asked is what is kept, and what is kept is what is shown.

    words -> request -> body -> spec -> stored text -> spec -> body -> words

Each arrow that has a way back is gone there and back with drawn requests. Below, builds that are
broken on purpose: the laws must see each of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from roost.cli.words import asking
from roost.cli.words.asking import read_affinity, vm_fields
from roost.cli.words.options import RequestWords
from roost.model.constraints import LabelOperator
from roost.model.flow import PlaceRequest
from roost.model.vm import VMSpec
from roost.wire import bodies as b
from roost.wire import spectext
from roost.wire.specs import boot_body, constraints_json, nic_body, spec_of
from roost.wire.spectext import read_spec, spec_text
from roost.wire.text import requestwords
from roost.wire.text.requestwords import (
    write_constraints,
    write_demand,
    write_group,
    write_request,
)
from roost.wire.translate import constraints_of

# Bodies. Characters that mean something in words come up more often than by chance.
TEXT = st.one_of(
    st.sampled_from(["a", "b-1", "tier"]),
    st.text(st.sampled_from("ab1 ,=:#*?[]-\\\"'\n\té"), min_size=1, max_size=6),
)
NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,5}", fullmatch=True)
AMOUNT = st.one_of(st.integers(1, 10_000), st.integers(1, 2**48))
WORDS = st.lists(TEXT, max_size=2)
WEIGHT, SKEW = st.integers(1, 100), st.integers(1, 1000)
DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda hexed: f"sha256:{hexed}")


def terms(kind: type, **more: st.SearchStrategy) -> st.SearchStrategy:
    """Return terms on labels that make sense."""
    values = {
        "in": st.lists(TEXT, min_size=1, max_size=3),
        "exists": st.just([]),
        "gt": st.integers(-(2**40), 2**40).map(lambda number: [str(number)]),
    }
    like = {"in": ("in", "not-in"), "exists": ("exists", "absent"), "gt": ("gt", "lt")}
    assert {word for words in like.values() for word in words} == {o.value for o in LabelOperator}
    return st.one_of(
        st.builds(kind, key=TEXT, operator=st.sampled_from(words), values=values[of], **more)
        for of, words in like.items()
    )


RULE = st.sampled_from(["affinity", "anti-affinity", "spread"])
SCOPE = st.sampled_from(["host", "rack", "zone"])
GROUP = st.builds(
    b.GroupBody,
    name=NAME, rule=RULE, scope=SCOPE, hard=st.booleans(), max_skew=SKEW, weight=WEIGHT,
)  # fmt: skip
AFFINITY = st.builds(
    b.AffinityBody,
    selector=st.dictionaries(NAME, NAME, min_size=1, max_size=2),
    rule=RULE, scope=SCOPE, hard=st.booleans(), max_skew=SKEW, weight=WEIGHT,
)  # fmt: skip
DEMAND = st.builds(
    b.DemandBody,
    cpu=st.one_of(st.integers(1, 64), st.integers(1, 64_000).map(lambda milli: f"{milli}m")),
    memory=AMOUNT,
    disk=AMOUNT,
    gpu=st.one_of(
        st.just(0),
        st.builds(
            b.DeviceBody,
            count=st.integers(1, 16), share_milli=st.integers(1, 1000), models=WORDS, memory=AMOUNT,
        ),
    ),
    extended=st.dictionaries(NAME.map(lambda name: f"x-{name}"), AMOUNT, max_size=2),
    numa=st.sampled_from(["any", "one", "split"]),
)  # fmt: skip
CONSTRAINTS = st.builds(
    b.ConstraintsBody,
    labels=st.lists(terms(b.LabelTermBody), max_size=2),
    tolerations=st.lists(
        st.builds(b.TolerationBody, key=TEXT, value=st.none() | TEXT), max_size=2
    ),
    architecture=st.none() | TEXT,
    driver=st.none() | TEXT,
    capabilities=WORDS, zones=WORDS, racks=WORDS, sites=WORDS, hosts=WORDS, not_hosts=WORDS,
    preferences=st.lists(terms(b.PreferenceBody, weight=WEIGHT), max_size=2),
)  # fmt: skip
IMAGE = st.builds(b.ImageBody, digest=DIGEST, url=st.sampled_from(["", "https://a.org/x?y=1"]))
BOOT = st.builds(
    b.BootBody,
    image=st.none() | IMAGE, kernel=st.none() | IMAGE, initrd=st.none() | IMAGE, cmdline=TEXT,
    user_data=st.sampled_from(["", "#cloud-config"]),
)  # fmt: skip
NIC = st.builds(
    b.NicBody,
    mode=st.sampled_from(["user", "tap"]), bridge=st.sampled_from(["", "br0"]),
    mac=st.sampled_from(["", "52:54:00:12:34:56"]),
    forward=st.lists(st.just("tcp:2222:22"), max_size=2),
)  # fmt: skip
BODY = st.builds(
    b.CreateVM,
    name=NAME,
    demand=DEMAND,
    project=NAME,
    strategy=st.none() | NAME,
    constraints=st.none() | CONSTRAINTS,
    groups=st.lists(st.one_of(NAME, GROUP), max_size=2),
    affinity=st.lists(AFFINITY, max_size=2),
    priority=st.integers(-1000, 1000),
    on_no_fit=st.sampled_from(["fail", "queue"]),
    restart=st.sampled_from(["here", "elsewhere"]),
    start=st.booleans(),
    boot=st.none() | BOOT,
    nics=st.lists(NIC, max_size=2),
)


def sent(body: b.CreateVM) -> b.CreateVM:
    """Return a body as the server reads what was sent."""
    return msgspec.json.decode(msgspec.json.encode(body), type=b.CreateVM)


def request_of(body: b.CreateVM, spec: VMSpec) -> PlaceRequest:
    """Return what a spec asks of a host, in the owner's name."""
    return PlaceRequest(
        body.name, spec.demand, spec.constraints, spec.groups, spec.strategy, None, spec.priority,
        body.project,
    )  # fmt: skip


# Laws


def a_spec_is_read_as_it_was_written(body: b.CreateVM) -> None:
    made = spec_of(sent(body))
    assert read_spec(made.text) == made.spec
    assert spec_text(read_spec(made.text)) == made.text


def a_spec_shown_as_a_body_is_the_same_spec(body: b.CreateVM) -> None:
    """All but user data, of which a spec has the digest alone."""
    spec = spec_of(sent(body)).spec
    again = b.CreateVM(
        **vm_fields(request_of(body, spec)),
        affinity=body.affinity,
        on_no_fit=spec.on_no_fit,  # type: ignore[arg-type]
        restart=spec.restart,  # type: ignore[arg-type]
        start=spec.start,
        boot=boot_body(spec.boot),
        nics=[nic_body(nic) for nic in spec.nics],
    )
    shown = spec_of(sent(again)).spec
    if spec.boot is not None:
        assert shown.boot is not None
        shown = replace(shown, boot=replace(shown.boot, user_data=spec.boot.user_data))
    assert shown == spec
    asked = msgspec.convert(constraints_json(spec), b.ConstraintsBody)
    assert constraints_of(asked) == spec.constraints


def what_a_newer_release_wrote_stays(body: b.CreateVM) -> None:
    """Unknown fields in every object of the text, whatever is at its default beside them."""
    plain = msgspec.json.decode(spec_of(sent(body)).text)
    for number, place in enumerate(list(objects_in(plain))):
        place[f"new_{number}"] = {"deep": [number]}
    text = msgspec.json.encode(plain).decode()
    assert msgspec.json.decode(spec_text(read_spec(text))) == plain


def objects_in(plain: Any) -> list[dict[str, Any]]:
    """Return every object that has fields, and not keys of its owner's choice."""
    if isinstance(plain, list):
        return [each for value in plain for each in objects_in(value)]
    if not isinstance(plain, dict):
        return []
    inner = [value for name, value in plain.items() if name not in ("extended", "selector")]
    return [plain, *objects_in(inner)]


def typed_words_come_back(body: b.CreateVM) -> None:
    """Typed, sent, kept, and shown again in the same words."""
    asked = request_of(body, spec_of(body).spec)
    typed = RequestWords(asked.name, words_of(asked)).request()
    assert typed == asked
    body_sent = sent(b.CreateVM(**vm_fields(typed)))
    kept = read_spec(spec_of(body_sent).text)
    assert write_request(request_of(body_sent, kept)) == write_request(asked)


def words_of(asked: PlaceRequest) -> tuple[tuple[str, str], ...]:
    """Return what somebody types after the options; a shell has taken the quotes away."""
    words = [*write_demand(asked.demand), *write_constraints(asked.constraints)]
    for group in asked.groups:
        written = requestwords.escape(group) if isinstance(group, str) else None
        words.append(f"group={written or ' '.join(write_group(group))}")  # type: ignore[arg-type]
    words += [f"strategy={asked.strategy}"] if asked.strategy else []
    words += [f"priority={asked.priority}", f"project={asked.project}"]
    pairs = (word.partition("=") for word in words)
    return tuple((name, value[1:-1] if value[:1] == '"' else value) for name, _, value in pairs)


def a_rule_on_labels_is_read_as_it_is_written(rule: b.AffinityBody) -> None:
    labels = ",".join(f"{name}={value}" for name, value in rule.selector.items())
    hard = "hard" if rule.hard else "soft"
    more = f"max-skew={rule.max_skew} weight={rule.weight}"
    assert read_affinity(f"{labels} {rule.rule} {rule.scope} {hard} {more}") == rule


LAWS = (
    a_spec_is_read_as_it_was_written,
    a_spec_shown_as_a_body_is_the_same_spec,
    what_a_newer_release_wrote_stays,
    typed_words_come_back,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_drawn_body_goes_there_and_back(law: Callable[[b.CreateVM], None]) -> None:
    given(BODY)(law)()


def test_a_drawn_rule_on_labels_goes_there_and_back() -> None:
    given(AFFINITY)(a_rule_on_labels_is_read_as_it_is_written)()


# Broken builds

Patch = pytest.MonkeyPatch


def _numa_is_not_kept(patch: Patch) -> None:
    real = spectext._spec_form

    def form(spec: VMSpec) -> Any:
        made = real(spec)
        made.demand.numa = spectext.NumaMode.ANY
        return made

    patch.setattr(spectext, "_spec_form", form)


def _excluded_hosts_are_shown_as_wanted(patch: Patch) -> None:
    real = asking._constraints

    def constraints(asked: Any) -> b.ConstraintsBody:
        made = real(asked)
        made.hosts, made.not_hosts = made.not_hosts, made.hosts
        return made

    patch.setattr(asking, "_constraints", constraints)


def _cards_lose_their_forwards(patch: Patch) -> None:
    real = nic_body

    def bare(nic: Any) -> b.NicBody:
        return msgspec.structs.replace(real(nic), forward=[])

    patch.setitem(globals(), "nic_body", bare)


def _unknown_fields_in_lists_are_forgotten(patch: Patch) -> None:
    real = spectext._find_unknown

    def find(plain: Any, form: Any, path: Any, found: Any) -> None:
        if not isinstance(form, list):
            real(plain, form, path, found)

    patch.setattr(spectext, "_find_unknown", find)


def _weights_are_not_written(patch: Patch) -> None:
    real = requestwords.write_group

    def bare(group: Any) -> list[str]:
        return real(replace(group, weight=50))

    patch.setitem(globals(), "write_group", bare)


def _a_share_of_a_gpu_is_sent_as_a_whole_one(patch: Patch) -> None:
    real = asking.demand_body

    def demand(asked: Any) -> b.DemandBody:
        made = real(asked)
        if isinstance(made.gpu, b.DeviceBody):
            made.gpu.share_milli = 1000
        return made

    patch.setattr(asking, "demand_body", demand)


BROKEN = (
    (_numa_is_not_kept, a_spec_is_read_as_it_was_written),
    (_excluded_hosts_are_shown_as_wanted, a_spec_shown_as_a_body_is_the_same_spec),
    (_cards_lose_their_forwards, a_spec_shown_as_a_body_is_the_same_spec),
    (_unknown_fields_in_lists_are_forgotten, what_a_newer_release_wrote_stays),
    (_weights_are_not_written, typed_words_come_back),
    (_a_share_of_a_gpu_is_sent_as_a_whole_one, typed_words_come_back),
)


@pytest.mark.parametrize(("break_it", "law"), BROKEN, ids=lambda each: each.__name__)
def test_the_laws_see_a_broken_build(
    monkeypatch: Patch, break_it: Callable[[Patch], None], law: Callable[[b.CreateVM], None]
) -> None:
    break_it(monkeypatch)
    read_spec.cache_clear()
    try:
        with pytest.raises(AssertionError):
            settings(phases=[Phase.generate])(given(BODY)(law))()
    finally:
        read_spec.cache_clear()
