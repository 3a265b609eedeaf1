"""What things are called inside Kubernetes: labels, annotations, the taint of fake nodes.

The names of pods and of what is noted on them are those of the Scheduler Integration Summary and
of KubeVirt, so that tools made for either read roost's pods; the group of the objects is our own.
"""

GROUP = "roost.dev"
VERSION = "v1alpha1"
#: Who wrote a field, for server-side bookkeeping and in events.
MANAGER = "roost"

# VMs and where they live

#: While a VM has it, its pods are still there; whoever takes them away takes it off.
VM_FINALIZER = f"{GROUP}/pods"
#: On VMs that a list of VMs made: what is no longer on the list goes.
LIST_LABEL, LISTED = f"{GROUP}/managed-by", "list"
#: On namespaces that hold VMs: the webhook of all namespaces is asked about evictions only there.
VMS_NAMESPACE_LABEL = f"{GROUP}/vms"

# Pods

POD_PREFIX = "virt-launcher"
APP_LABEL, APP = "app", "virt-launcher"
DOMAIN_LABEL = "kubevirt.io/domain"
NAME_LABEL = "vm.kubevirt.io/name"
#: Which of a VM's groups a pod belongs to: GROUP_LABEL + the group's name, with this value.
GROUP_LABEL, MEMBER = f"group.{GROUP}/", "member"
#: Tells one pod of a VM from another, so that a rule can leave out the one that is moving.
LAUNCHER_LABEL = f"{GROUP}/launcher"
#: Set on the target of a migration, with the migration's number.
MIGRATION_LABEL = f"{GROUP}/migration"
DOMAIN_ANNOTATION = "kubevirt.io/domain"
EVICT_ONLY_ANNOTATION = "descheduler.alpha.kubernetes.io/request-evict-only"
#: On a pod whose eviction goes on in the background; taking it off tells that it does not.
EVICTION_IN_PROGRESS_ANNOTATION = "descheduler.alpha.kubernetes.io/eviction-in-progress"
PREFER_NO_EVICTION_ANNOTATION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"

_ALLOCATION = "simulation.node-classifier.io/vm-"
CPU_CORES_ANNOTATION = f"{_ALLOCATION}cpu-cores"
MEMORY_BYTES_ANNOTATION = f"{_ALLOCATION}memory-bytes"
CPU_UTILIZATION_ANNOTATION = f"{_ALLOCATION}cpu-utilization"
MEMORY_UTILIZATION_ANNOTATION = f"{_ALLOCATION}memory-utilization"
DIRTY_RATE_ANNOTATION = f"{_ALLOCATION}dirty-rate-mbps"

#: While a pod has it, nobody but the controller can make the pod go away.
FINALIZER = "kubevirt.io/migration-protection"

# Nodes

NODE_LABEL, NODE_KIND = "type", "kwok"
SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
HOSTNAME_LABEL = "kubernetes.io/hostname"
ZONE_LABEL = "topology.kubernetes.io/zone"
RACK_LABEL = f"topology.{GROUP}/rack"
#: Scope of a group rule, in roost's words, to the label whose values are the domains.
SCOPE_LABELS = {"host": HOSTNAME_LABEL, "rack": RACK_LABEL, "zone": ZONE_LABEL}
FAKE_TAINT_KEY, FAKE_TAINT_VALUE = "kwok.x-k8s.io/node", "fake"
#: Put on nodes under pressure when asked: the scheduler avoids them, nothing is thrown off.
PRESSURE_TAINT_KEY = f"{GROUP}/pressure"
