"""The network between hosts: described or measured, kept as a row, followed, asked for paths."""
