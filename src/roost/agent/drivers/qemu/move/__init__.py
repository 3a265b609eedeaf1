"""Live migration with QEMU: send, receive, mirror disks, and end in exactly one running copy."""
