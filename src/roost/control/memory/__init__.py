"""What one process knows without asking: the fleet, the events, and how far to trust them."""
