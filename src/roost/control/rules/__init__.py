"""Constraints: rules about where VMs may be, as objects with versions, a dry run and a check."""
