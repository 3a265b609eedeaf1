"""Worlds of jobs on rented machines: the shipped plane and worker, a simulated cloud between them.

`cloud` rents machines and is slow, fails, answers twice and lists late; `machines` runs the shipped
worker on each, with jobs that take virtual time; `laws` says what may never be; `lowering` is a
user who lowers limits; `jobworld` draws a world from a seed, does it and judges.
"""
