"""Benchmarks: what roost promises about speed, memory and packing, measured and judged."""
