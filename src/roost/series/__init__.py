"""The store of series: what VMs and hosts use over time, apart from the ledger.

opening     which store goes with a ledger
embedded    the store itself: batches as they come, filed into chunks, read as one
cleaning    what cannot be kept goes before the rest is, and is counted
filing      readings of one subject into chunks and roll-ups
columns     readings in columns: merged, as rates, rolled up
batches     readings of many subjects as bytes, until they are filed
codec       columns as few bytes, and back exactly
shelf       the port to a database of batches and chunks
sqlite      batches and chunks in a file
postgres    batches and chunks in a schema of their own
prometheus  a Prometheus that answers instead, and is imported from

Implements the port of `roost.analysis.store`. Nothing here is ever part of a ledger's transaction.
"""
