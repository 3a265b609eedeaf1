"""Where other VMs are: groups of VMs, and the network on the way to those that must be near."""
