"""The ledger in a SQLite file: the `store`, its `writer`, and the claim path.

`whole` keeps a batch of creates in one statement, `claims` step by step, `rows` are both's inserts.
"""
