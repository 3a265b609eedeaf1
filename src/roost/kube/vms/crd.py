"""What a VirtualMachine object is, as the API server checks it; and how it is made known there."""

from roost.base.clock import Clock, RealClock
from roost.base.errors import NotFound
from roost.kube.base.client import CRDS, VMS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import GROUP, VERSION
from roost.kube.base.objects import Object
from roost.kube.vms.spec import PHASES

CRD_NAME = f"{VMS.plural}.{GROUP}"
#: Reached only when the API server has trouble of its own; usually some tens of milliseconds.
ESTABLISHED_S = 30.0
#: A VM's name is the value of a label of its pods.
_LONGEST_NAME = 63

_TEXT: Object = {"type": "string"}
_NUMBER: Object = {"type": "number"}
_WHOLE: Object = {"type": "integer", "format": "int64"}
_TIME: Object = {"type": "string", "format": "date-time"}
_RATIO = {"type": "string", "pattern": r"^(0(\.[0-9]+)?|\.[0-9]+|1(\.0*)?)$"}
#: Disruption budgets in percent, or of how many may be missing, ask the owner of each pod how many
#: pods it has when all is well. Nobody has to write it: VMs of before it was known have it, too.
_ONE: Object = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 1, "default": 1}
_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}

_BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def _struct(required: tuple[str, ...] = (), **fields: Object) -> Object:
    found: Object = {"type": "object", "properties": fields}
    return found | ({"required": list(required)} if required else {})


def _list(of: Object, at_most: int, **more: object) -> Object:
    return {"type": "array", "items": of, "maxItems": at_most} | more


def _spec() -> Object:
    group = _struct(
        ("name", "rule"),
        name={"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$"},
        rule={"type": "string", "enum": ["affinity", "anti-affinity", "spread"]},
        scope={"type": "string", "enum": ["host", "rack", "zone"], "default": "host"},
        hard={"type": "boolean", "default": True},
        maxSkew={"type": "integer", "minimum": 1, "default": 1},
    )
    # The scheduler counts only pods that match all hard affinity rules of a pod at once: with two,
    # neither would mean what it says.
    one_home = {
        "rule": "self.filter(g, g.rule == 'affinity' && g.hard).size() <= 1",
        "message": "a VM can have one hard affinity group at most",
    }
    # The API server takes no pod that says this twice.
    one_spread = {
        "rule": "self.all(g, g.rule != 'spread' || self.filter(h, h.rule == 'spread' && "
        "h.scope == g.scope && h.hard == g.hard).size() == 1)",
        "message": "a VM can have one hard and one soft spread group at most of each scope",
    }
    placement = _struct(
        zones=_list({"type": "string", "minLength": 1, "maxLength": 63}, 100),
        nodeSelector={"type": "object", "additionalProperties": {"type": "string"}},
        nodeName={"type": "string", "maxLength": 253},
        groups=_list(group, 16, **{"x-kubernetes-validations": [one_home, one_spread]}),
    )
    quantity = {"x-kubernetes-int-or-string": True}
    return _struct(
        ("resources",),
        running={"type": "boolean", "default": True},
        replicas=_ONE | {"description": "Always 1; disruption budgets count VMs by it."},
        resources=_struct(
            ("cpu", "memory"),
            cpu=quantity | {"pattern": r"^[0-9]+(\.[0-9]{1,3}|m)?$"},
            memory=quantity | {"pattern": r"^[0-9]+(\.[0-9]+)?([KMGT]i?B?|k|B)?$"},
        ),
        utilization={
            "default": {},
            **_struct(cpu=_RATIO | {"default": "0.5"}, memory=_RATIO | {"default": "0.8"}),
        },
        migration={
            "default": {},
            **_struct(dirtyRateMbps={"type": "number", "minimum": 0, "default": 800}),
        },
        placement=placement,
    )


def _status() -> Object:
    migration = _struct(
        number=_WHOLE,
        phase=_TEXT,
        reason=_TEXT,
        sourceNode=_TEXT,
        sourcePod=_TEXT,
        targetPod=_TEXT,
        targetNode=_TEXT,
        wantedNode=_TEXT,
        startedAt=_TIME,
        endedAt=_TIME,
        rounds=_WHOLE,
        copiedBytes=_WHOLE,
        downtimeMs=_NUMBER,
    )
    # Fields of a later version are kept rather than lost.
    migration["x-kubernetes-preserve-unknown-fields"] = True
    condition = _struct(
        ("type", "status"),
        type=_TEXT,
        status=_TEXT,
        reason=_TEXT,
        message=_TEXT,
        lastTransitionTime=_TIME,
    )
    return _struct(
        phase={"type": "string", "enum": list(PHASES)},
        nodeName=_TEXT,
        podName=_TEXT,
        reason=_TEXT,
        allocatedCpu=_TEXT,
        allocatedMemory=_TEXT,
        restarts=_WHOLE,
        replicas={"type": "integer", "format": "int32", "default": 1},
        failures=_struct(count=_WHOLE, lastAt=_TIME),
        conditions=_list(
            condition,
            16,
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
        evacuationNodeName=_TEXT,
        evacuation=_struct(cause=_TEXT, wantedNode=_TEXT, requestedAt=_TIME)
        | {"x-kubernetes-preserve-unknown-fields": True},
        migration=migration,
        migrations=_list(migration, 100),
        coolDownUntil=_TIME,
    )


def _column(name: str, path: str, kind: str = "string", **more: object) -> Object:
    return {"name": name, "type": kind, "jsonPath": path} | more


def crd() -> Object:
    """Return the definition of VirtualMachine objects."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": _SCALE},
        "additionalPrinterColumns": [
            _column("Phase", ".status.phase"),
            _column("CPU", ".spec.resources.cpu"),
            _column("Memory", ".spec.resources.memory"),
            _column("CPU used", ".spec.utilization.cpu"),
            _column("Memory used", ".spec.utilization.memory"),
            _column("Node", ".status.nodeName"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Reason", ".status.reason", priority=1),
        ],
        "schema": {
            "openAPIV3Schema": _struct(
                ("spec",), apiVersion=_TEXT, kind=_TEXT, metadata={"type": "object"},
                spec=_spec(), status=_status(),
            )
            | {
                "description": "A VM that runs in a pod, placed by the cluster's scheduler.",
                "x-kubernetes-validations": [
                    {
                        "rule": f"size(self.metadata.name) <= {_LONGEST_NAME}",
                        "message": f"a VM's name has at most {_LONGEST_NAME} characters",
                    }
                ],
            }
        },
    }  # fmt: skip
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            # `vm` is KubeVirt's.
            "names": {
                "kind": VMS.kind,
                "listKind": f"{VMS.kind}List",
                "plural": VMS.plural,
                "singular": "virtualmachine",
                "shortNames": ["rvm"],
            },
            "versions": [version],
        },
    }


async def install_crd(kube: Kube, clock: Clock | None = None) -> None:
    """Make VirtualMachine objects known, or bring their definition up to date; then wait for it."""
    clock = clock or RealClock()
    wanted = crd()
    found = await kube.ensure(CRDS, wanted)
    # Our definition comes back with defaults added: what we ask for must be in it, not equal it.
    if not _within(wanted["spec"], found["spec"]):
        await kube.patch(CRDS, CRD_NAME, {"spec": wanted["spec"]})
    elif _established(found):
        return
    mirror = await Mirror(kube, CRDS, clock=clock).start()
    try:
        await mirror.until(
            lambda: _established(mirror.get(CRD_NAME)) or None, ESTABLISHED_S, CRD_NAME
        )
    finally:
        await mirror.stop()


async def is_installed(kube: Kube) -> bool:
    """Say whether the cluster knows VirtualMachine objects."""
    try:
        return _established(await kube.get(CRDS, CRD_NAME))
    except NotFound:
        return False


def _established(found: Object | None) -> bool:
    conditions = ((found or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _within(wanted: object, found: object) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        # A definition that has more properties than ours is an older or a newer one.
        if (
            "properties" in wanted
            and wanted["properties"].keys() != found.get("properties", {}).keys()
        ):
            return False
        return all(key in found and _within(value, found[key]) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_within, wanted, found))
    return wanted == found
