"""Hard rules, one small file each: a Reason, a column over the fleet, and a form in the index.

Rooms are by what is looked at: `state`, `attributes`, `neighbours`, `amounts`; what people wrote
themselves (`predicate`, `rule`, `rule_error`) lies beside them. The order in which filters are
asked is in `roost.placement.registry`. Filters do not see each other.
"""
