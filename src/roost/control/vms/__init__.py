"""VMs that exist: looked up, shown, started, stopped, resized, deleted."""
