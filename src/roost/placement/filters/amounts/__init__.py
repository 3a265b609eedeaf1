"""What is left of a host: VMs, base amounts, extended resources, holds, devices, NUMA cells."""
