"""Fencing on the host: the lease, the guard process, and the recipes by which it stops VMs."""
