"""Benchmark of the analysis: quality on unseen series, empty hosts by lifetimes, the store."""
