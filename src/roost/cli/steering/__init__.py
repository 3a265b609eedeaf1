"""Where VMs may go and who goes first: `rules`, `policies`, `priorities`, `reservations`.

`preempting` lets VMs of lower priority make room.
"""
