"""KUBE: VMs as pods, placed by a real kube-scheduler, moved as KubeVirt moves them.

    VirtualMachine --(controller)--> virt-launcher pod --(kube-scheduler)--> node
         ^                                |                                    |
         +------ status, by watch --------+------ utilisation ---> exporter <--+

    base             client, mirror, lease and work queue: asking an API server, copies by watch
    cluster          a whole control plane with fake nodes on loopback
    vms, moving      pods for VMs, and their migrations; `control` runs both
    metering         what nodes and VMs use
    script           scenarios as data
    scenarios        stories, played and reported
    translate        pods and nodes in the words of roost's engine

All but `cluster` works against any cluster that a kubeconfig names. The rest of roost knows
nothing of Kubernetes.
"""
