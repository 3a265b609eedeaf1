"""The guided tours of `roost demo`, on virtual hosts and on QEMU."""
