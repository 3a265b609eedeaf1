"""How the agent speaks to a hypervisor: one port (`base`), one file per driver."""
