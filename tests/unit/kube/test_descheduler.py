"""What the descheduler is told, and what its log tells."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from roost.kube.scenarios.descheduler import (
    Told,
    in_a_pods_place,
    policy,
    promql,
    read_log,
    with_context,
)
from roost.kube.scenarios.prometheus import settings
from roost.kube.script.descheduling import Descheduling
from roost.wire.text.strictyaml import Seconds


def arguments(found: dict, plugin: str) -> dict:
    (profile,) = found["profiles"]
    return {each["name"]: each["args"] for each in profile["pluginConfig"]}[plugin]


def test_a_policy_asks_prometheus_and_keeps_to_one_namespace() -> None:
    wanted = Descheduling(under=5, over=15, per_node=2, total=5)
    found = policy(wanted, namespace="n", nodes="a=b", prometheus_url="http://p")
    assert found["nodeSelector"] == "a=b"
    assert (found["maxNoOfPodsToEvictPerNode"], found["maxNoOfPodsToEvictTotal"]) == (2, 5)
    use = arguments(found, "LowNodeUtilization")
    assert use["useDeviationThresholds"] is True
    assert use["thresholds"] == {"MetricResource": 5}
    assert use["targetThresholds"] == {"MetricResource": 15}
    assert use["metricsUtilization"]["prometheus"]["query"] == promql(wanted)
    (provider,) = found["metricsProviders"]
    assert provider["prometheus"]["url"] == "http://p"
    evictor = arguments(found, "DefaultEvictor")
    assert evictor["namespaceLabelSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "n"}
    assert evictor["labelSelector"]["matchLabels"] == {"app": "virt-launcher"}


def test_without_prometheus_requests_are_compared() -> None:
    found = policy(Descheduling(source="requests"), namespace="n", nodes="")
    assert "metricsProviders" not in found
    use = arguments(found, "LowNodeUtilization")
    assert use["thresholds"] == {"cpu": 10, "memory": 10}
    assert "metricsUtilization" not in use


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Descheduling(), 'label_replace(node_cpu_usage_ratio, "instance"'),
        (Descheduling(metric="memory-pressure"), "node_memory_pressure_psi"),
        (Descheduling(smooth=Seconds(3)), "avg_over_time(node_cpu_usage_ratio[3000ms])"),
        (Descheduling(query="my_query"), "my_query"),
    ],
)
def test_the_query_carries_the_nodes_name_as_instance(wanted: Descheduling, words: str) -> None:
    assert words in promql(wanted)


def test_prometheus_keeps_the_labels_of_the_exporter() -> None:
    found = settings(["127.0.0.1:1"], 0.5)
    assert found["global"]["scrape_interval"] == "500ms"
    assert found["scrape_configs"][0]["honor_labels"] is True


LOG = """
I1 descheduler.go:252] "Number of evictions/requests" totalEvicted=0 evictionRequests=1
I1 evictions.go:1] "Eviction in background assumed" pod="n/virt-launcher-a-1"
E1 evictions.go:1] "Error evicting pod" err="error when evicting pod (ignoring) \\"a\\": cools"
E1 evictions.go:1] "Error evicting pod" err="maximum number of evicted pods per node reached"
E1 descheduler.go:1] "running balance extension point failed with error" err="no" profile="roost"
I1 descheduler.go:252] "Number of evictions/requests" totalEvicted=0 evictionRequests=1
"""


def test_a_log_is_counted() -> None:
    assert read_log(LOG) == Told(rounds=2, background=1, refused=1, limited=1, failed_rounds=1)
    assert read_log("") == Told()


def test_another_context_becomes_the_current_one_in_a_copy(tmp_path: Path) -> None:
    config = tmp_path / "a" / "config"
    config.parent.mkdir()
    config.write_text(
        yaml.safe_dump(
            {
                "current-context": "one",
                "clusters": [{"name": "c", "cluster": {"certificate-authority": "ca.crt"}}],
                "users": [{"name": "u", "user": {"client-key": "/abs.key", "token": "t"}}],
            }
        )
    )
    copy = with_context(config, "two", tmp_path / "copy")
    found = yaml.safe_load(copy.read_text())
    assert found["current-context"] == "two"
    authority = found["clusters"][0]["cluster"]["certificate-authority"]
    assert authority == str(tmp_path / "a" / "ca.crt")
    assert found["users"][0]["user"] == {"client-key": "/abs.key", "token": "t"}
    assert copy.stat().st_mode & 0o777 == 0o600
    assert "one" in config.read_text()


def test_the_descheduler_finds_an_authority_where_a_pod_has_it(tmp_path: Path) -> None:
    """By the real thing: a command that reads the file from there, in a /run of its own."""
    file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    command = in_a_pods_place(["cat", file], tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode and "unshare" in done.stderr and not os.environ.get("CI"):
        pytest.skip(f"no mount namespaces here: {done.stderr}")
    assert done.stdout.strip() == (tmp_path / "authorities.crt").read_text().strip()
    assert not Path(file).exists()
    assert shlex.split(command[-1])[-1] == file
