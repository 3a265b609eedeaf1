"""Machines of Azure, rented with its official SDK (extra `roost[azure]`).

`account` is what an account says, `answers` turns Azure's codes and virtual machines into ours,
`provider` is the port. Tested against an HTTP stub of ours that follows the documented API, its
long-running operations included; no real cloud was reached.
"""
