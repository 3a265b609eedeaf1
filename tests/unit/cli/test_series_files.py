"""Series written for a Prometheus, read back by the parser of its own client library."""

from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from roost.base.errors import InvalidRequest
from roost.cli.words.seriesfiles import Part, read_parts, write_parts
from roost.series.prometheus import DEFAULT_QUERY

PARTS = (
    Part("vm", 'we"b\\1', [1_500, 2_000], {"cpu_milli": [1.0, None], "disk_reads": [5.0, 7.25]}),
    Part("host", "h1", [1_001], {"cpu_milli.mean": [0.5]}),
    Part("vm", "other", [1_500], {"cpu_milli": [3.0]}),
    Part("vm", "nothing", [], {}),
)


def written(file: Path) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return values and moments by metric and label."""
    assert write_parts(file, PARTS) == 4
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
        for sample in family.samples:
            (label,) = sample.labels.values()
            found.setdefault((sample.name, label), []).append(
                (sample.value, float(sample.timestamp))
            )
    return found


def test_a_prometheus_is_given_what_roost_asks_it_for(tmp_path: Path) -> None:
    assert written(tmp_path / "week.openmetrics") == {
        ("roost_vm_cpu_milli", 'we"b\\1'): [(1.0, 1.5)],
        ("roost_vm_cpu_milli", "other"): [(3.0, 1.5)],
        ("roost_vm_disk_reads", 'we"b\\1'): [(5.0, 1.5), (7.25, 2.0)],
        ("roost_host_cpu_milli_mean", "h1"): [(0.5, 1.001)],
    }
    asked = (DEFAULT_QUERY % "cpu_milli").replace("${kind}", "vm").replace("${name}", "other")
    assert asked + " 3 1.500\n" in (tmp_path / "week.openmetrics").read_text(encoding="utf-8")


def test_what_is_for_a_prometheus_is_not_imported(tmp_path: Path) -> None:
    file = tmp_path / "week.openmetrics"
    write_parts(file, PARTS)
    with pytest.raises(InvalidRequest, match="only written"):
        list(read_parts(file, 100))
