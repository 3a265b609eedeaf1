"""Talking with a Kubernetes API server: client, mirror, lease, work queue, names and values."""
