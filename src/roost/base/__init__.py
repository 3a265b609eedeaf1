"""Errors and units: the words every layer shares, none of them about VMs."""
