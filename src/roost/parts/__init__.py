"""What use cases are made of: the protocol of a part, singleton leases, access."""
