"""The network between hosts: described, kept as a row, followed in memory, asked for paths."""
