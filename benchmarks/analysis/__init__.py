"""What analysis costs: the store of series."""
