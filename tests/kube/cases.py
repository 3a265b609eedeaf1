"""Random clusters and random pods, a kind of rule at a time; everything follows from the seed.

Each case has nodes of its own, labelled `case=NUMBER`, and every pod selects them, so that many
cases live in one cluster and do not see each other. Fault domains carry the number too.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from roost.kube.base.names import HOSTNAME_LABEL, RACK_LABEL, ZONE_LABEL

Object = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ROOM_LABEL = "example.com/room"
GPU = "example.com/gpu"
FINALIZER = "example.com/stays"
NAMESPACE = "agreement"
KINDS = ("requests", "taints", "node affinity", "anti-affinity", "spread", "affinity", "mixed")


@dataclass
class Case:
    """Nodes, the pods that are on them, and the pods that wait."""

    kind: str
    number: int
    nodes: list[Object]
    placed: list[Object] = field(default_factory=list)
    ending: list[str] = field(default_factory=list)  # of the placed ones: being deleted
    finished: list[str] = field(default_factory=list)  # of the placed ones: have succeeded
    waiting: list[Object] = field(default_factory=list)


def make_case(kind: str, number: int, seed: int) -> Case:
    """Draw a case."""
    return _Draw(kind, number, random.Random(f"{kind}/{seed}")).case()


class _Draw:
    def __init__(self, kind: str, number: int, rng: random.Random) -> None:
        self.kind, self.number, self.rng = kind, number, rng
        self.mixed = kind == "mixed"
        self.rack_key = rng.choice((RACK_LABEL, ROOM_LABEL))

    def has(self, kind: str, share: float = 0.5) -> bool:
        """Say whether this case is about a kind of rule."""
        return self.kind == kind or (self.mixed and self.rng.random() < share)

    def case(self) -> Case:
        rng = self.rng
        case = Case(self.kind, self.number, [self.node(n) for n in range(rng.randint(3, 8))])
        names = [node["metadata"]["name"] for node in case.nodes]
        templates = [self.template(app) for app in ("a", "b")]
        for n in range(rng.randint(0, 2 * len(names))):
            pod = self.pod(f"placed-{n}", rng.choice(templates))
            pod["spec"] |= {"nodeName": rng.choice(names)}
            pod["metadata"]["finalizers"] = [FINALIZER]
            case.placed.append(pod)
            if (drawn := rng.random()) < 0.1:
                case.ending.append(pod["metadata"]["name"])
            elif drawn < 0.2:
                case.finished.append(pod["metadata"]["name"])
        for n in range(2):
            pod = self.pod(f"waiting-{n}", rng.choice(templates))
            # What is asked of amounts would else be met nearly everywhere.
            if self.has("requests"):
                self.large(pod)
            case.waiting.append(pod)
        return case

    # Nodes

    def node(self, n: int) -> Object:
        rng, name = self.rng, f"c{self.number}-n{n}"
        labels = {"case": str(self.number), HOSTNAME_LABEL: name}
        full = 1.0 if self.kind != "mixed" else 0.97
        if rng.random() < (full if self.kind == "anti-affinity" else 0.9):
            labels[ZONE_LABEL] = f"c{self.number}-z{rng.randrange(3)}"
        if rng.random() < (full if self.kind == "anti-affinity" else 0.9):
            labels[self.rack_key] = f"c{self.number}-r{rng.randrange(3)}"
        labels["disk"] = rng.choice(("ssd", "hdd"))
        labels["generation"] = rng.choice(("1", "2", "3", "ten"))
        if rng.random() < 0.5:
            labels["tier"] = rng.choice(("gold", "silver"))
        tight = self.has("requests")
        amounts = {
            "cpu": rng.choice(("1", "2", "3500m")) if tight else "16",
            "memory": rng.choice(("2Gi", "3Gi", "4G")) if tight else "64Gi",
            "pods": str(rng.randint(1, 6)) if tight else "50",
        }
        if rng.random() < 0.7:
            amounts["ephemeral-storage"] = rng.choice(("5Gi", "20Gi"))
        if rng.random() < 0.5:
            amounts[GPU] = rng.choice(("1", "2"))
        spec: Object = {}
        if self.has("taints"):
            taints = {}
            for _ in range(rng.randrange(3)):
                taint = self.taint()
                taints[taint["key"], taint["effect"]] = taint
            spec["taints"] = list(taints.values())
            if rng.random() < 0.12:
                spec["unschedulable"] = True
        ready = "True"
        if self.has("taints") and rng.random() < 0.1:  # as the node controller would leave it
            ready = "False"
            taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
            spec.setdefault("taints", []).append(taint)
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }

    def taint(self) -> Object:
        rng = self.rng
        effect = rng.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
        taint = {"key": rng.choice(("dedicated", "spot")), "effect": effect}
        if value := rng.choice(("", "db", "web")):
            taint["value"] = value
        return taint

    # Pods

    def template(self, app: str) -> Object:
        """Draw the rules that the pods of an application share; a few of them go without."""
        affinity: Object = {}
        if self.has("anti-affinity"):
            affinity["podAntiAffinity"] = {REQUIRED: self.terms(app, 2)}
        if self.has("affinity", 0.3):
            affinity["podAffinity"] = {REQUIRED: self.terms(app, 2)}
        spread = []
        if self.has("spread"):
            keys = self.rng.sample((ZONE_LABEL, self.rack_key, HOSTNAME_LABEL), 2)
            spread = [self.spread(app, key) for key in keys[: self.rng.choice((1, 1, 2))]]
        return {"app": app, "affinity": affinity, "spread": spread}

    def terms(self, app: str, most: int) -> list[Object]:
        keys = self.rng.sample((ZONE_LABEL, self.rack_key, HOSTNAME_LABEL), most)
        wanted = keys[: self.rng.choice((1, 1, 1, 2))]
        return [{"topologyKey": key, "labelSelector": self.selector(app)} for key in wanted]

    def selector(self, app: str) -> Object:
        rng, case = self.rng, {"case": str(self.number)}
        drawn = rng.random()
        if drawn < 0.7:
            return {"matchLabels": case | {"app": app}}
        if drawn < 0.8:
            return {"matchLabels": case}
        if drawn < 0.9:
            chosen = {"key": "app", "operator": "In", "values": ["a", "b"]}
        else:
            chosen = {"key": "app", "operator": "NotIn", "values": [rng.choice(("a", "b"))]}
        return {"matchLabels": case, "matchExpressions": [chosen]}

    def spread(self, app: str, key: str) -> Object:
        rng = self.rng
        made: Object = {
            "maxSkew": rng.choice((1, 1, 2)),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": self.selector(app),
        }
        if rng.random() < 0.3:
            made["nodeTaintsPolicy"] = "Honor"
        if rng.random() < 0.2:
            made["minDomains"] = rng.choice((2, 4))
        if rng.random() < 0.2:
            made["matchLabelKeys"] = ["version"]
        return made

    def pod(self, name: str, template: Object) -> Object:
        rng = self.rng
        labels = {"case": str(self.number), "app": template["app"]}
        labels["version"] = rng.choice(("1", "1", "2"))
        requests = {"cpu": rng.choice(("100m", "0.25")), "memory": rng.choice(("128Mi", "200M"))}
        spec: Object = {
            "nodeSelector": {"case": str(self.number)},
            "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
            "terminationGracePeriodSeconds": 30,
        }
        careless = rng.random() < 0.1
        affinity = {} if careless else {**template["affinity"]}
        if template["spread"] and not careless:
            spec["topologySpreadConstraints"] = template["spread"]
        if self.has("node affinity"):
            affinity["nodeAffinity"] = self.node_affinity()
            if rng.random() < 0.3:
                spec["nodeSelector"] |= {"disk": "ssd"}
        if affinity:
            spec["affinity"] = affinity
        if self.has("taints", 0.8):
            spec["tolerations"] = [self.toleration() for _ in range(rng.randrange(4))]
        return {
            "metadata": {
                "name": f"c{self.number}-{name}", "namespace": NAMESPACE, "labels": labels
            },
            "spec": spec,
        }  # fmt: skip

    def large(self, pod: Object) -> None:
        rng, spec = self.rng, pod["spec"]
        requests = spec["containers"][0]["resources"]["requests"]
        requests |= {
            "cpu": rng.choice(("500m", "1", "1500m")),
            "memory": rng.choice(("512Mi", "1Gi", "2Gi")),
        }
        if rng.random() < 0.3:
            requests["ephemeral-storage"] = "4Gi"
        if rng.random() < 0.3:
            gpus = rng.choice(("1", "2"))
            requests[GPU] = gpus
            spec["containers"][0]["resources"]["limits"] = {GPU: gpus}
        if rng.random() < 0.4:
            small, big = {"cpu": "100m"}, {"cpu": "1800m", "memory": "64Mi"}
            spec["initContainers"] = [
                {"name": "first", "image": "x", "resources": {"requests": big}},
                {
                    "name": "sidecar", "image": "x", "restartPolicy": "Always",
                    "resources": {"requests": small},
                },
                {"name": "last", "image": "x", "resources": {"requests": rng.choice((small, big))}},
            ]  # fmt: skip

    def toleration(self) -> Object:
        rng = self.rng
        made: Object = {"operator": rng.choice(("Exists", "Equal", "Equal"))}
        if rng.random() < 0.9 or made["operator"] == "Equal":
            keys = ("dedicated", "spot", "node.kubernetes.io/unschedulable",
                    "node.kubernetes.io/not-ready")  # fmt: skip
            made["key"] = rng.choice(keys)
        if made["operator"] == "Equal":
            made["value"] = rng.choice(("", "db", "web"))
        if rng.random() < 0.6:
            made["effect"] = rng.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        return made

    def node_affinity(self) -> Object:
        rng = self.rng
        terms = [self.node_term() for _ in range(rng.choice((1, 1, 2, 3)))]
        affinity: Object = {REQUIRED: {"nodeSelectorTerms": terms}}
        if rng.random() < 0.3:
            wish = {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}
            affinity[PREFERRED] = [{"weight": 10, "preference": wish}]
        return affinity

    def node_term(self) -> Object:
        rng = self.rng
        term: Object = {"matchExpressions": [self.expression() for _ in range(rng.randint(0, 2))]}
        if rng.random() < 0.2:
            name = f"c{self.number}-n{rng.randrange(4)}"
            term["matchFields"] = [
                {
                    "key": "metadata.name",
                    "operator": rng.choice(("In", "NotIn")),
                    "values": [name],
                }
            ]
        return term

    def expression(self) -> Object:
        rng = self.rng
        key = rng.choice(("disk", "generation", "tier", ZONE_LABEL))
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "generation", "operator": operator, "values": [rng.choice("0123")]}
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        values = {
            "disk": ["ssd", "hdd"], "generation": ["1", "2", "ten"], "tier": ["gold", "silver"],
            ZONE_LABEL: [f"c{self.number}-z{z}" for z in range(3)],
        }[key]  # fmt: skip
        chosen = rng.sample(values, rng.randint(1, len(values)))
        return {"key": key, "operator": operator, "values": chosen}
