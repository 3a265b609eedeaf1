"""KUBE: VMs as pods, placed by a real kube-scheduler, moved as KubeVirt moves them.

    VirtualMachine --(controller)--> virt-launcher pod --(kube-scheduler)--> node
         ^                                |                                    |
         +------ status, by watch --------+------ utilisation ---> exporter <--+

`local` runs a whole control plane with fake nodes on loopback; everything else works as well
against any cluster that a kubeconfig names. The rest of roost knows nothing of Kubernetes.
"""
