"""The rights that a controller needs are those that are written down, and who has none is told."""

from pathlib import Path

import pytest
import yaml

from roost.base.errors import Forbidden
from roost.kube.base.client import Kube, Resource, TooManyRequests
from roost.kube.base.lease import LeaseSettings
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings
from roost.kube.moving.webhook import Webhook
from tests.kube.clusters import run
from tests.kube.keeping import space

RIGHTS = Path(__file__).parents[2] / "examples" / "kubernetes" / "rights.yaml"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = Resource(_RBAC, "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)


def test_the_rights_that_are_written_down_suffice(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    async def body() -> None:
        config = cluster.write_kubeconfig(tmp_path / "keeper", name)
        async with space(cluster, name, 2, settings=None) as there:
            role = yaml.safe_load(RIGHTS.read_text())
            role["metadata"]["name"] = name
            await there.kube.create(ROLES, role)
            group = "rbac.authorization.k8s.io"
            await there.kube.create(
                BINDINGS,
                {
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                    "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
                },
            )
            async with await Kube.open(config) as kube:
                settings = ControllerSettings(lease=LeaseSettings())
                door = Webhook(kube, namespace=name)
                made = Controller(kube, name, settings=settings, beside=[door])
                await made.start()
                try:
                    await made.until_leading()
                    await there.create("web")
                    was = (await there.running("web"))["nodeName"]
                    [pod] = there.pods
                    with pytest.raises(TooManyRequests, match="evacuation"):
                        await there.kube.evict(pod["metadata"]["name"], name)
                    await there.running("web", but=was)
                finally:
                    await made.stop()
            await there.kube.delete(BINDINGS, name)
            await there.kube.delete(ROLES, name)

    run(body)


def test_who_has_no_rights_is_told_where_they_are_written(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    async def body() -> None:
        config = cluster.write_kubeconfig(tmp_path / "nobody", "nobody")
        async with await Kube.open(config) as kube:
            made = Controller(kube, name)
            with pytest.raises(Forbidden, match="nobody") as told:
                await made.start()
            await made.stop()
        assert "docs/how-to/kubernetes.md" in (told.value.hint or "")

    run(body)
