"""Benchmark of the analysis: quality on unseen series, empty hosts by lifetimes, cost of the store."""
