"""Rules in the engine: from a set of rules and a request to columns, floors and penalties.

RuleSet -> binding -> BoundRule (terms) -> parts -> columns | floors | inequalities -> tables
              `- folding (what is known of the VM)        `- scoring (soft rules)

paths      what an expression reads
facts      what there is to read: hosts, VMs, groups, the fleet
folding    an expression with everything known put in
lines      comparisons of amounts that the index and the kernels understand
parts      a bound rule taken apart by what its parts read
columns    true, false or error for every host, kept by what is read
scoring    what soft rules charge every host
left       what is left of a condition once its VM is known, remembered
binding    which rules bind a request
lasting    rules without what they count of a project's VMs of now
refusing   which part of which rule refused a host, with the host's values
"""
