"""New VMs and VMs without a host: ask the engine, propose a claim, commit it."""
