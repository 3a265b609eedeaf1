"""The QEMU driver: real VMs, each one QEMU process with a folder that outlives the agent.

`driver` is the port. `handle` is what is held of one VM in this process, `manifest` and `folders`
what is written down of it, `sight` what that makes it. `command`, `launch` and `power` are its
life; `monitor` and `process` are QEMU as it is reached and seen. `move` is both halves of a move.
"""
