"""VMs: `vms` with `vmsettings` and `moves`, `groups` of them, their `flavors`."""
