"""What nodes and VMs use, kept up by watches and served as Prometheus reads it."""
