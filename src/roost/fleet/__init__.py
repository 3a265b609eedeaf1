"""Hosts and VMs as NumPy columns: what there is, what is promised, what is left.

One thread owns a fleet; a long question takes a `snapshot()` and asks that. Nothing here decides
anything: deciding is `roost.placement`.
"""
