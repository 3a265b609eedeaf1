"""Policies: bundles of how VMs are placed, with versions, differences, a dry run and defaults."""
