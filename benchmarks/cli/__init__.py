"""CLI benchmark: CPU of whole commands against a server that answers at once.

`canned` is that server, `main` runs the commands as processes and prints the table; `installed`
counts what an install takes, `starting` times a first start.
"""
