"""Scenarios as data: what a file says of nodes, VMs, loads and steps."""
