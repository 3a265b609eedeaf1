"""VMs that leave a node: the copy, who may begin when, and evictions that become migrations."""
