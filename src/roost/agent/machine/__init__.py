"""What the host machine is and has: facts, devices, disk and pressure."""
