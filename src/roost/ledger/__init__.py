"""COMMIT: the durable truth. Rows, claims conditional by value, and events in the same transaction.

Only `control`, `jobs`, `app` and `sim` may import it.
"""
