"""The network between hosts: nodes, links, paths over several hops, and pictures of it.

    network   nodes and links, checked; the traffic that was declared between VMs
    routes    paths with their bandwidth and latency, shared uplinks, islands
    distances the same in whole numbers for decisions: far, near, saturated, shared
    labels    a network made of zones and racks, where nobody described one
    learning  who talks, learnt from what was counted
    measuring which pairs of hosts to measure, and the tree that explains what was found
    picture   the same as text for a terminal, and as SVG

Pure: no I/O and no clock. Bandwidth is in Mbit/s, latency in ms.
"""
