"""The ledger in PostgreSQL: the `store`, and its `claims`."""
