"""Flavors, the amounts of VMs by name: `flavors.py` has the use cases, `routes.py` their paths."""
