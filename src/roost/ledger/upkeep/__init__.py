"""What must hold of the ledger, and what it keeps how long.

`checks` and `fold` restate its laws, `examination` is the form of a doctor's questions; `retention`
deletes what is old, `base` folds old events into rows.
"""
