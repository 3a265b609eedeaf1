"""The agent's conversation with a control plane: join, register, and one connection's session.

`probing` carries out probes that it orders, `probeline` is what agents then say to each other.
"""
