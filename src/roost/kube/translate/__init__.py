"""Kubernetes in roost's words: nodes become hosts, pods become requests or VMs.

Pure: objects in, values of `roost.model` out, no cluster is asked. What roost cannot say the same
way is returned as `Unsupported`, never left out silently.

    Cluster(nodes, pods)            what there is, as lists of objects
    translate_node(node, topology)  -> HostSpec
    Translator(cluster).pod(pod)    -> Translated(request, unsupported)
    describe(cluster)               -> FleetDescription of nodes and the pods on them
"""
