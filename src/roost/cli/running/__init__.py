"""Processes of roost, and what is done to their database.

`serve`, `agent` and `worker` stay until they are stopped, `sim` runs worlds; `doctor`, `backups`,
`ledger` and `key` see to a database; `warm` compiles the kernels.
"""
