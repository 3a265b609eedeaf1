"""COMMIT: the durable truth. Rows, claims conditional by value, and events in the same transaction.

Only `parts`, `control`, `jobs`, `app` and `sim` may import it.
"""
