"""`roost apply` and `roost diff` as they are typed, against a control plane that is served."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from roost.base.errors import InvalidRequest
from roost.cli.words.applyfile import WantedFleet, read_wanted
from roost.cli.words.fleetdiff import FleetNow, plan_of
from roost.ledger.schema.tables import vms
from roost.wire.bodies import CreateVM, DemandBody
from tests.integration.control.rig import Rig, run
from tests.integration.control.typed import typing

SHOP = """
projects:
  - name: shop
    quota: {cpu: 64, memory: 256GiB}
flavors:
  - {name: m1, demand: {cpu: 1, memory: 1GiB}, description: small}
hosts:
  - name: h0
    labels: {tier: gold}
    taints: [{key: noisy, effect: prefer-not}]
    overcommit: {cpu: 2}
    reserve: {cpu: 1, memory: 1GiB}
groups:
  - {name: web, project: shop, rule: spread}
---
vms:
  - {name: web-1, project: shop, flavor: m1, groups: [web], labels: {app: shop}}
  - {name: web-2, project: shop, flavor: m1, groups: [web], labels: {app: shop}}
  - name: db-1
    project: shop
    demand: {cpu: 2, memory: 2GiB, disk: 10GiB}
    labels: {app: shop}
    priority: 5
"""


def test_an_apply_makes_what_a_file_says_and_a_second_one_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)

    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 16)
        async with typing(rig, monkeypatch) as type_:
            planned = await type_("diff", "-f", str(tmp_path), rc=1)
            assert "+ vm db-1 of shop" in planned.output
            assert "6 to create, 1 to change, 0 to delete, 0 unchanged" in planned.output
            made = await type_("apply", "-f", str(tmp_path))
            assert "vm web-1 created on h0" in made.output, made.output
            await rig.settle()
            again = await type_("apply", "-f", str(file))
            assert again.output == "0 to create, 0 to change, 0 to delete, 7 unchanged\n"
            await type_("diff", "-f", str(file))
            # What is changed by hand is brought back, and what the file says anew is done.
            await type_("vm", "set", "db-1", "--project", "shop", "--label", "app=other")
            await type_("host", "set", "h0", "--taint", "noisy-")
            file.write_text(SHOP.replace("cpu: 2, memory: 2GiB", "cpu: 3, memory: 2GiB")
                            .replace("groups: [web], labels: {app: shop}}\n  - {name: web-2",
                                     "labels: {app: shop}}\n  - {name: web-2"))  # fmt: skip
            said = (await type_("apply", "-f", str(file))).output
            assert "~ vm db-1 of shop  cpu: 2 -> 3" in said, said
            assert "labels: app=other -> app=shop" in said
            assert "taints: none -> noisy=:prefer-not" in said
            assert "~ vm web-1 of shop  leaves group web" in said
            await rig.settle()
            told = json.loads((await type_("apply", "-f", str(file), "-o", "json")).output)
            assert told == {"steps": [], "unchanged": 7}

    run(sqlite_url, test)


def test_pruning_deletes_what_no_file_names_and_asks_before_much(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = [f"  - {{name: a{n}, labels: {{app: x}}, demand: {{cpu: 0.1, memory: 1MiB}}}}"
             for n in range(20)]  # fmt: skip
    file = tmp_path / "vms.yaml"

    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 16)
        await rig.running("other")
        async with typing(rig, monkeypatch) as type_:
            file.write_text("vms:\n" + "\n".join(lines))
            await type_("apply", "-f", str(file))
            await rig.settle()
            file.write_text("vms:\n" + "\n".join(lines[:18]))
            assert "18 unchanged" in (await type_("diff", "-f", str(file))).output
            prune = ("apply", "-f", str(file), "--prune", "-l", "app=x")
            assert "- vm a18" in (await type_(*prune)).output  # 2 of 21
            await rig.settle()
            file.write_text("vms:\n" + "\n".join(lines[:10]))
            refused = await type_(*prune, rc=2)
            assert "8 of 19 VMs would be deleted, more than a tenth" in refused.output
            await type_(*prune, "--yes")
            await rig.settle()
            assert len((await type_("vm", "list", "-o", "name")).output.split()) == 11
            assert (
                "belong together" in (await type_("apply", "-f", str(file), "--prune", rc=2)).output
            )

    run(sqlite_url, test)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vms:\n  - name: a\n    demnd: {cpu: 1}\n", "x.yaml:3:5: there is no field `demnd` here"),
        ("vms:\n  - {name: a, demand: {cpu: 1, memroy: 1GiB}}\n", "x.yaml:2:32"),
        ("vm:\n  - name: a\n", "x.yaml:1:1: there is no field `vm` here"),
        ("- name: a\n", "x.yaml:1:1: a file has sections, each a list"),
        ("vms:\n  - name: 7\n    flavor: x\n", "x.yaml:2:5: expected `str`"),
        ("vms:\n  - name: a\n    name: b\n", "x.yaml:3:5: the field `name` is there twice"),
        ("vms: [\n", "x.yaml:2:1"),
        ("hosts:\n  - name: h\n    taints: [{key: a, effect: never}]\n", "x.yaml:3:"),
        ("vms:\n  - name: a/b\n    flavor: x\n", "x.yaml:2:5: 'a/b' is not a name: letters and"),
        (
            "vms:\n  - {name: a, flavor: x, restart: elswhere}\n",
            "x.yaml:2:26: 'elswhere' is none of",
        ),
        ("vms:\n  - name: a\n", "needs a demand or a flavor"),
        ("vms:\n  - {name: a, flavor: x}\n  - {name: a, flavor: x}\n", "already"),
    ],
)
def test_a_mistake_in_a_file_is_told_by_its_place(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequest) as wrong:
        read_wanted([str(file)])
    assert told in wrong.value.message, wrong.value.message
    if "demnd" in text:
        assert wrong.value.hint == "Maybe `demand`?"
    if "memroy" in text:
        assert wrong.value.hint == "Maybe `memory`?"
    if "elswhere" in text:
        assert wrong.value.hint == "Maybe 'elsewhere'?"


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("memroy: 1GiB", "Maybe within `demand`: `demand: {memory: ...}`?"),
        ("host: [h1]", "Maybe within `constraints`: `constraints: {hosts: ...}`?"),
        ("lables: {a: b}", "Maybe `labels`?"),
        ("colour: blue", "Maybe one of name, demand, flavor"),
    ],
)
def test_a_field_in_the_wrong_place_is_told_its_place(
    tmp_path: Path, field: str, hint: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"vms:\n  - name: a\n    flavor: x\n    {field}\n")
    with pytest.raises(InvalidRequest, match=r"x\.yaml:4:5: there is no field") as wrong:
        read_wanted([str(file)])
    assert str(wrong.value.hint).startswith(hint)


@pytest.mark.parametrize(
    ("vm", "told"),
    [
        (CreateVM(name="a", flavor="nosuch"), "VM 'a': there is no flavor 'nosuch'"),
        (CreateVM(name="a", demand=DemandBody(cpu=0, memory=1)), "VM 'a': a VM needs cpu and"),
    ],
)
def test_a_new_vm_that_cannot_be_is_told_before_anything_is_done(vm: CreateVM, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        plan_of(WantedFleet(vms=[vm]), FleetNow({}, {}, {}, {}, {}))


def test_what_cannot_be_done_is_told_beside_what_was(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("""
hosts: [{name: nope, labels: {a: b}}]
vms:
  - {name: huge, demand: {cpu: 99, memory: 1GiB}}
  - {name: fits, demand: {cpu: 1, memory: 1GiB}}
""")

    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 16)
        async with typing(rig, monkeypatch) as type_:
            said = await type_("apply", "-f", str(file), rc=4)
            assert "host nope: there is no such host" in said.output
            assert "vm fits created on h0" in said.output
            assert "1 of 3 done, 2 failed" in said.output

    run(sqlite_url, test)


def test_a_batch_that_is_run_again_fails_for_nothing_that_is_as_asked(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "batch.txt"
    file.write_text("a cpu=1 memory=1GiB\nb cpu=1 memory=1GiB\n")

    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 16)
        async with typing(rig, monkeypatch) as type_:
            await type_("vm", "batch", str(file))
            again = await type_("vm", "batch", str(file))
            assert "0 created, 0 queued, 0 failed" in again.output
            assert "2 there already, as asked" in again.output
            file.write_text("a cpu=2 memory=1GiB\nb cpu=1 memory=1GiB\nc cpu=1 memory=1GiB\n")
            other = json.loads((await type_("vm", "batch", str(file), "-o", "json", rc=1)).output)
            assert (other["created"], other["failed"]) == (1, 1)
            assert [each["error"] is None for each in other["results"]] == [False, True, True]

    run(sqlite_url, test)


IMAGE, OTHER_IMAGE = (f"sha256:{digit * 64}" for digit in "12")
EVERYTHING = f"""
  - name: a
    demand: {{cpu: 1, memory: 1GiB}}
    until: "2100-01-01T00:00:00+01:00"
    boot: {{image: {{digest: "{IMAGE}"}}, cmdline: quiet}}
    nics: [{{mode: tap, bridge: br0}}]
    constraints:
      architecture: x86_64
      zones: [z1, z2]
      labels: [{{key: ssd}}, {{key: tier, operator: in, values: [gold, silver]}}]
      tolerations: [{{key: noisy}}]
      preferences: [{{key: fast, weight: 10}}]
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (IMAGE, OTHER_IMAGE, "image"),
        ("cmdline: quiet", "cmdline: debug", "cmdline 'quiet', wanted 'debug'"),
        ("bridge: br0", "bridge: br1", "nics"),
        ("br0}]", "br0}, {mode: user}]", "nics"),
        ("2100-", "2101-", "until 2099-12-31T23:00:00.000Z, wanted 2101-01-01T00:00:00+01:00"),
        ("    boot:", "    reservation: night\n    boot:", "reservation none, wanted night"),
        ("architecture: x86_64", "architecture: arm64", "constraints.architecture"),
        ("      architecture: x86_64\n", "", "constraints.architecture"),
        ("      architecture: x86_64\n", "      driver: qemu\n      sites: [s]\n",
         "constraints.architecture; constraints.driver; constraints.sites"),
        ("weight: 10", "weight: 20", "constraints.preferences"),
    ],
)  # fmt: skip
def test_what_only_a_new_vm_can_have_is_told_and_left_alone(
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    old: str,
    new: str,
    told: str,
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"vms:{EVERYTHING}    on_no_fit: queue\n")

    async def test(rig: Rig) -> None:
        async with typing(rig, monkeypatch) as type_:
            await type_("apply", "-f", str(file))
            file.write_text(file.read_text().replace("[z1, z2]", "[z2, z1]"))
            assert "1 unchanged" in (await type_("apply", "-f", str(file))).output
            file.write_text(f"vms:{EVERYTHING}".replace(old, new))
            said = (await type_("diff", "-f", str(file), rc=1)).output
            assert f"! vm a  cannot be changed: {told}\n" in said
            assert f"vm a: cannot be changed: {told}" in (
                await type_("apply", "-f", str(file), rc=4)
            ).output.replace("\n", " ")
            # What a file does not say may be as it is, but for constraints.
            bound = EVERYTHING.partition("    constraints:")[2]
            plain = "vms:\n  - name: a\n    demand: {cpu: 1, memory: 1GiB}\n    constraints:"
            file.write_text(plain + bound)
            assert "1 unchanged" in (await type_("diff", "-f", str(file))).output

    run(sqlite_url, test)


def test_where_a_vm_may_be_is_set_and_a_second_apply_does_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"vms:{EVERYTHING}    on_no_fit: queue\n")

    async def test(rig: Rig) -> None:
        async with typing(rig, monkeypatch) as type_:
            await type_("apply", "-f", str(file))
            for old, new, told in (
                ("[z1, z2]", "[z1]", "zone=z1,z2 -> "),
                ("zones: [z1]", "racks: [r1]", " rack=r1"),
                ("gold, silver", "gold", '"tier in gold,silver"'),
                ("key: noisy", "key: noisy, value: x", "tolerate=noisy=x"),
                ("      labels: [{key: ssd}, ", "      labels: [", 'label="ssd exists" label='),
                ("      tolerations: [{key: noisy, value: x}]\n", "", "tolerate=noisy=x"),
            ):
                file.write_text(file.read_text().replace(old, new))
                said = (await type_("apply", "-f", str(file))).output
                assert "0 to create, 1 to change, 0 to delete, 0 unchanged" in said, said
                assert "~ vm a  constraints: " in said
                assert told in said, said
                again = (await type_("apply", "-f", str(file))).output
                assert again == "0 to create, 0 to change, 0 to delete, 1 unchanged\n"
        assert (await rig.get("a")).constraints == {
            "architecture": "x86_64", "racks": ["r1"],
            "labels": [{"key": "tier", "operator": "in", "values": ["gold"]}],
            "preferences": [{"key": "fast", "weight": 10}],
        }  # fmt: skip

    run(sqlite_url, test)


def test_a_batch_that_is_run_again_with_another_image_fails_and_says_so(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "batch.yaml"
    text = (
        f'- {{name: a, demand: {{cpu: 1, memory: 1GiB}}, boot: {{image: {{digest: "{IMAGE}"}}}}}}'
    )
    file.write_text(text)

    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 16)
        async with typing(rig, monkeypatch) as type_:
            await type_("vm", "batch", str(file))
            assert "1 there already, as asked" in (await type_("vm", "batch", str(file))).output
            file.write_text(text.replace(IMAGE, OTHER_IMAGE))
            other = json.loads((await type_("vm", "batch", str(file), "-o", "json", rc=1)).output)
            assert other["failed"] == 1
            said = other["results"][0]["error"]["message"]
            assert said.endswith("it is there, but not as asked: cannot be changed: image"), said

    run(sqlite_url, test)


def test_a_prune_leaves_other_projects_alone_and_deletes_nothing_after_a_failure(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    head = "projects: [{name: shop}]\nvms:\n"
    vm = "  - {name: %s, project: shop, demand: {cpu: %s, memory: 1GiB}, labels: {app: web}}\n"
    file.write_text(head + vm % ("old", 1))

    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 16)
        await rig.create("theirs", labels={"app": "web"})
        prune = ("apply", "-f", str(file), "--prune", "-l", "app=web", "--yes")
        async with typing(rig, monkeypatch) as type_:
            await type_(*prune)
            await rig.settle()
            file.write_text(head + vm % ("new", 100))  # which fits nowhere
            refused = await type_(*prune, rc=6)
            assert "vm old: not deleted" in refused.output
            file.write_text(head + vm % ("new", 2))
            assert "vm old deleted" in (await type_(*prune)).output
            await rig.settle()
        assert {row["name"] for row in await rig.rows(select(vms.c.name))} == {"new", "theirs"}

    run(sqlite_url, test)


def test_files_that_name_no_project_are_about_the_context_s(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("vms:\n  - {name: web, demand: {cpu: 1, memory: 1GiB}}\n")

    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 16)
        async with typing(rig, monkeypatch) as type_:
            await type_("project", "create", "shop")
            monkeypatch.setenv("ROOST_PROJECT", "shop")
            await type_("apply", "-f", str(file))
        assert [row["project"] for row in await rig.rows(select(vms.c.project))] == ["shop"]

    run(sqlite_url, test)
