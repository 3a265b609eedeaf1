"""What the host machine is and has: facts, devices, control groups and pressure."""
