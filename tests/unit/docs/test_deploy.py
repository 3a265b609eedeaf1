"""What is shipped for running roost: alert rules, a Grafana dashboard, units of systemd."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus import find_prometheus

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "roost.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "roost.json"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
_METRIC = re.compile(r"\b((?:roost|process)_[a-z0-9_]+)\b")
_MADE = ("_bucket", "_sum", "_count")


def known_metrics() -> set[str]:
    """Return the metrics that the reference names, also those that it names by their ends."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    found: set[str] = set()
    for line in page.splitlines():
        if not line.startswith("| `"):
            continue
        words = re.findall(r"`([a-z0-9_]+)`", line.split("|")[1])
        first = next((w for w in words if not w.startswith("_")), "")
        found.update(w for w in words if not w.startswith("_"))
        stem = re.sub(r"_capacity_(cores|bytes)$", "", first)
        found.update(stem + w for w in words if w.startswith("_"))
    return found


def metrics_in(expression: str) -> set[str]:
    """Return the metrics that a query asks for."""
    found = set(_METRIC.findall(expression))
    return {re.sub(r"_(bucket|sum|count)$", "", each) for each in found}


def queries() -> dict[str, str]:
    """Return every query of the dashboard, with a plain range for Grafana's own."""
    board = json.loads(DASHBOARD.read_text())
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "5m")
        for panel in board["panels"]
        for target in panel["targets"]
    }


def test_every_query_and_alert_asks_for_metrics_that_there_are() -> None:
    known = known_metrics()
    assert "roost_host_memory_committed_bytes" in known
    rules = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"]: rule["expr"] for group in rules for rule in group["rules"]}
    for name, expression in (queries() | alerts).items():
        asked = metrics_in(expression)
        assert asked, name
        assert asked <= known, (name, asked - known)


def test_panels_have_titles_of_their_own_and_lie_beside_each_other() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_every_query_is_promql(tmp_path: Path) -> None:
    promtool = find_prometheus().with_name("promtool")
    rules = [
        {"record": f"q{number}", "expr": expression}
        for number, expression in enumerate(queries().values())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    subprocess.run([promtool, "check", "rules", file], check=True, capture_output=True)
    rules[0]["expr"] = "sum(roost_hosts"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert subprocess.run([promtool, "check", "rules", file], capture_output=True).returncode


def test_alerts_fire_when_they_should() -> None:
    promtool = find_prometheus().with_name("promtool")
    for words in (("check", "rules", RULES), ("test", "rules", RULES.with_suffix(".test.yml"))):
        done = subprocess.run([promtool, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_to_systemd(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    # The program that it starts lies elsewhere on this machine.
    text = unit.read_text().replace("/opt/roost/bin/roost", "/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(text)
    done = subprocess.run([program, "verify", copy], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert said == [], said


def test_no_unit_lets_a_start_wait_for_what_can_be_made_beforehand() -> None:
    for unit in UNITS:
        assert "ExecStartPre" not in unit.read_text(), unit


def test_the_server_s_unit_keeps_compiled_code_where_the_pages_compile_it() -> None:
    text = (DEPLOY / "systemd" / "roost-server.service").read_text()
    assert "CacheDirectory=roost\n" in text
    assert "Environment=ROOST_CACHE=/var/cache/roost\n" in text
    assert "HOME=" not in text
    for page in ("run-in-production", "upgrade"):
        told = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
        assert "runuser -u roost -- env ROOST_CACHE=/var/cache/roost /opt/roost" in told


def test_a_wheel_brings_the_pages_and_what_is_shipped_for_running_it(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed: make setup")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = {name.partition(".data/data/share/roost/")[2] for name in archive.namelist()}
    pages = [*(ROOT / "docs/how-to").glob("*.md"), *(ROOT / "docs/reference").glob("*.md")]
    shipped = [path for path in DEPLOY.rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in (*pages, *shipped)}
    assert len(wanted) > 40
    assert found - {""} == wanted


def test_the_recipe_of_an_image_copies_all_that_a_wheel_is_made_of() -> None:
    made_of = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wanted = {each.partition("/")[0] for each in made_of["targets"]["wheel"]["shared-data"]}
    recipe = (DEPLOY / "container" / "Containerfile").read_text()
    assert wanted == {"docs", "deploy"}
    for folder in ("src", *wanted):
        assert f"COPY {folder} /src/{folder}\n" in recipe
        assert folder in made_of["targets"]["sdist"]["include"]


def test_what_agents_and_workers_start_outlives_them() -> None:
    for name in ("roost-agent", "roost-worker"):
        assert "KillMode=process" in (DEPLOY / "systemd" / f"{name}.service").read_text()
