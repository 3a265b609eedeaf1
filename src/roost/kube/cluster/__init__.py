"""A Kubernetes control plane on this machine: its programs, certificates, fake nodes."""
