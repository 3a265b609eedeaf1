"""Hard rules, one small file each: a Reason, a column over the fleet, and a form in the index.

The order in which they are asked is in `roost.placement.registry`. Filters do not see each other.
"""
