"""The network between hosts: nodes, links, paths over several hops, and pictures of it.

    network   nodes and links, checked; the traffic that was declared between VMs
    routes    paths with their bandwidth and latency, shared uplinks, islands
    labels    a network made of zones and racks, where nobody described one
    picture   the same as text for a terminal, and as SVG

Pure: no I/O and no clock. Bandwidth is in Mbit/s, latency in ms.
"""
