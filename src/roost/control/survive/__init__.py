"""What is done about loss: silent hosts, fencing, recovery, a ledger restored from a copy."""
