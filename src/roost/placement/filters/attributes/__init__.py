"""What a request asks of the host itself: its name, labels, taints, kind and where it stands."""
