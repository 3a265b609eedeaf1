"""KUBE: VMs as pods, placed by a real kube-scheduler, moved as KubeVirt moves them.

    VirtualMachine --(controller)--> virt-launcher pod --(kube-scheduler)--> node
         ^                                |                                    |
         +------ status, by watch --------+------ utilisation ---> exporter <--+

    client, mirror   asking an API server, and local copies kept by watch
    cluster          a whole control plane with fake nodes on loopback
    vms, moving      pods for VMs, and their migrations; `control` runs both
    metering         what nodes and VMs use
    scenarios        stories, played and reported
    translate        pods and nodes in the words of roost's engine

All but `cluster` works against any cluster that a kubeconfig names. The rest of roost knows
nothing of Kubernetes.
"""
