"""Hosts as rows of the ledger: a registration, and every later change of one."""
