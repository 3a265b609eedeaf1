"""The commands of `roost kube`."""
