"""`roost analyze` as an operator types it, against a control plane that is served."""

import asyncio
import csv
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.base.timestamps import timestamp
from roost.cli.main import app
from roost.cli.words.seriesfiles import count_moments
from roost.model.series import MINUTE_MS, Reading, Subject
from roost.wire.agentlink import SampleInfo
from roost.wire.bodies import CreateToken
from roost.wire.series import Span
from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_group_api import served
from tests.integration.control.test_learning import DAILY, used
from tests.prometheus import BEGIN, END, WEB, cpu


async def says(*words: str, code: int = 0) -> str:
    """Run a command of `roost analyze`; return what it prints, each run of blanks as one."""
    found = await asyncio.to_thread(CliRunner().invoke, app, ["analyze", *words])
    assert found.exit_code == code, f"{words}\n{found.output}"
    return " ".join(found.output.split())


def typed(
    url: str, monkeypatch: pytest.MonkeyPatch, test: Callable[[Rig], Awaitable[None]]
) -> None:
    """Run a test that types commands as an operator, on a fleet of one host."""

    async def with_server(rig: Rig) -> None:
        await rig.host("h1")
        async with served(rig) as clients:
            monkeypatch.setenv("ROOST_SERVER", (await clients("viewer")).server)
            asked_for = CreateToken(name="op", role="operator")
            made = await rig.plane.access.create_token(asked_for, ADMIN)
            monkeypatch.setenv("ROOST_TOKEN", made.secret or "")
            monkeypatch.setenv("COLUMNS", "200")
            await test(rig)

    run(url, with_server, dated=True)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_exported_is_imported_again(
    ending: str, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow", reason="pip install 'roost[tables]'")

    async def test(rig: Rig) -> None:
        now = rig.clock.wall_ms()
        web = await rig.running("web")
        for minute in range(3):
            more = {"psi_io_some_avg10": 0.25 * minute} if minute else {}
            read = SampleInfo("", now + minute * MINUTE_MS, 100 * minute, 1 << 33, 7, more)
            rig.plane.readings.take(rig.number("h1"), [read])
        await rig.plane.readings.flush()
        file = tmp_path / f"h1.{ending}"
        since = ("--since", timestamp(now))
        assert "wrote 3 moments" in await says("export", str(file), "--host", "h1", *since)
        if ending == "csv":
            rows = list(csv.DictReader(file.read_text().splitlines()))
            assert [row["cpu_milli"] for row in rows] == ["0", "100", "200"]
            assert [row["psi_io_some_avg10"] for row in rows] == ["", "0.25", "0.5"]
            # The same of another one, by hand.
            file.write_text(file.read_text().replace("host,h1", f"vm,{web.name}"))
            assert "kept 3 moments, left out 0" in await says("import", str(file))
            span = Span(since_ms=now, until_ms=now + 10 * MINUTE_MS, figure=["psi_io_some_avg10"])
            found = await rig.plane.series.of_vm("web", None, span, ADMIN)
            assert found.figures == {"psi_io_some_avg10": [None, 0.25, 0.5]}
        else:
            told = json.loads(await says("import", str(file), "-o", "json"))
            assert told == {"kept": 3, "left_out": 0}

    typed(sqlite_url, monkeypatch, test)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_a_terminal_is_shown_how_much_is_imported(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    async def test(rig: Rig) -> None:
        await rig.running("web")
        now = rig.clock.wall_ms()
        rows = [f"vm,web,{now - MINUTE_MS * at},{at}" for at in range(60)]
        file = tmp_path / "web.csv"
        file.write_text("\n".join(["kind,name,at_ms,cpu_milli", *rows, ""]))
        assert count_moments(file) == 60
        monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
        found = await asyncio.to_thread(CliRunner().invoke, app, ["analyze", "import", str(file)])
        assert found.exit_code == 0
        assert ("importing" in found.stderr) == terminal
        assert ("60 moments" in found.stderr) == terminal
        assert "kept 60 moments, left out 0" in found.stdout

    typed(sqlite_url, monkeypatch, test)


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "broken.parquet"])
def test_of_a_file_that_cannot_be_read_nothing_is_counted(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pip install 'roost[tables]'")
    if name.startswith("broken"):
        (tmp_path / name).write_bytes(b"PAR1 and no more")
    assert count_moments(tmp_path / name) is None


def test_a_prometheus_is_imported_from(
    sqlite_url: str,
    prometheus_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig) -> None:
        # What is in a Prometheus is of the real time, and the plane's is another.
        rig.clock.ahead_s = END / 1000 - rig.clock.now
        asked = f'cpu_milli=cpu{{vm="{WEB.name.replace(chr(34), chr(92) + chr(34))}"}}'
        said = await says(
            "import", "--prometheus", prometheus_url, "--host", "h1", "--query", asked,
            "--since", timestamp(BEGIN), "--until", timestamp(END),
        )  # fmt: skip
        assert "kept 120 moments" in said
        found = await rig.plane.series.of_host("h1", Span(since_ms=BEGIN, until_ms=END))
        assert found.figures["cpu_milli"] == [cpu(at) for at in found.at_ms]
        assert len(found.at_ms) == 120

    typed(sqlite_url, monkeypatch, test)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind,name\nvm,x\n", "no column 'at_ms'"),
        ("kind,name,at_ms,cpu_milli\nrack,x,1,2\n", "row 2 is of 'rack' 'x'"),
        ("kind,name,at_ms,cpu_milli\nvm,x,soon,2\n", "row 2 cannot be read"),
        ("kind,name,at_ms,cpu_milli\nvm,x,1,2,3\n", "row 2 has too many cells"),
        ("kind,name,at_ms,cpu\nhost,h1,1,2\n", "no figure 'cpu'"),
        ("kind,name,at_ms,cpu_milli\nhost,h9,1,2\n", "no host 'h9'"),
    ],
    ids=["no column", "no kind", "no moment", "too many", "no figure", "no host"],
)
def test_a_file_that_makes_no_sense_is_refused(
    text: str, said: str, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        file = tmp_path / "series.csv"
        file.write_text(text)
        assert said in await says("import", str(file), code=3 if "no host" in said else 2)

    typed(sqlite_url, monkeypatch, test)


def test_a_prometheus_that_is_away_is_said(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        said = await says(
            "import", "--prometheus", "http://127.0.0.1:9", "--host", "h1",
            "--query", "cpu_milli=x", "--since", timestamp(0), "--until", timestamp(60_000), code=5,
        )  # fmt: skip
        assert "does not answer" in said
        assert "either a file or" in await says("import", code=2)

    typed(sqlite_url, monkeypatch, test)


def test_a_vm_is_shown_in_words_and_a_picture(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        web = await rig.running("web")
        await used(rig, Subject("vm", web.id), *DAILY, days=7)
        told = await says("vm", "web", "--hours", "12")
        assert "class: a service that follows the day" in told
        assert "cyclic every 24.0 h" in told
        assert "cpu: the last 48 h, and 12 h ahead from 2026-11-17T12:00Z" in told
        assert "disk io not read - - - - network not read" in told
        assert "off by" in told
        assert "cores up to 60 min ahead" in told
        for sign in "█●░":
            assert told.count(sign) > 10
        document = json.loads(await says("vm", web.id, "--resource", "memory", "-o", "json"))
        assert document["resources"]["memory"]["points"] == 2016
        assert "readings 2,016 kept of the week, none dropped or repaired" in told.replace(":", "")
        now = rig.clock.wall_ms()
        wrong = {"cpu_milli": 1.0, "net_sent_bytes": -1.0}
        moved = {"cpu_milli": 1.0, "net_sent_bytes": 5e6, "net_received_bytes": 0.0}
        other = {"cpu_milli": 1.0, "net_sent_bytes": 9e6, "net_received_bytes": 0.0}
        of_web = Subject("vm", web.id)
        some = [Reading(of_web, now - 400_000 + at, each) for at, each in enumerate((wrong, moved))]
        await rig.series.put([*some, Reading(of_web, now - 370_000, other)], now)
        told = await says("vm", "web", "--resource", "network")
        assert "2,019 kept of the week; dropped 1 negative" in told
        assert "network: the last 48 h" in told
        assert "KiB/s" in told
        assert "nothing was read" in await says("vm", "web", "--resource", "disk-io")
        assert "nothing was read" in await says("vm", (await rig.running("new")).name)
        assert "no VM 'gone'" in await says("vm", "gone", code=3)

    typed(sqlite_url, monkeypatch, test)
