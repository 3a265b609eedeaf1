"""The words for states, as types: a misspelled state is an error of the type checker.

Each is stored and sent as the text it is here, so a word may be added but never changed: another
version of roost may run beside this one. What a VM is called when it is shown is another word,
made from several of these (`control/vms/states.py`).
"""

from typing import Literal

#: What a user wants of a VM; an agent is told of all but `absent`.
Power = Literal["running", "paused", "stopped"]
Desired = Literal["running", "paused", "stopped", "absent"]

#: What an agent saw of a VM that rests on its host; empty before it was seen.
Observed = Literal["", "starting", "running", "paused", "stopping", "stopped", "failed"]

#: What an agent says of a VM, in the middle of a move too. `ready`: an incoming copy waits at an
#: endpoint. `arrived`: the VM is here now, and the source's copy cannot execute any more. `moved`:
#: the outgoing copy has left and does not run here by itself. `switching`: the guest stands still
#: at the last step of a move and only the target knows whether it has it. `absent`: destroyed
#: after a tombstone, or withdrawn; a withdrawn copy never executed.
Seen = Literal[
    "starting",
    "running",
    "paused",
    "stopping",
    "stopped",
    "ready",
    "arrived",
    "moved",
    "switching",
    "absent",
    "failed",
]

#: transient: retried with back-off. permanent: not before a new generation. capacity: the agent's
#: own books say no; retried when room appears.
FailureClass = Literal["transient", "permanent", "capacity"]

#: Where a move stands (`control/moves/machine.py`); empty: the VM is not moved.
Phase = Literal["", "preparing", "moving", "landing", "cancelling", "recalling"]

#: live: the guest executes until the last moment. cold: it lies, and its disk is sent.
MoveMode = Literal["live", "cold"]

#: run: this host runs it. The others are halves of a move. incoming: get ready to receive it, and
#: take it over when it has arrived. outgoing: send it to the peer. returning: keep it if that is
#: still possible. withdrawn: destroy what was made ready, unless the VM has arrived.
Part = Literal["run", "incoming", "outgoing", "returning", "withdrawn"]

#: run: the VM's home. migrate_in: the target of its move. hold: a host that must clean up first.
ClaimKind = Literal["run", "migrate_in", "hold"]

#: Where a VM may be started again after its host was lost.
Restart = Literal["here", "elsewhere"]

#: The same as the ledger keeps it. elsewhere_asked: a user wants it elsewhere, and its host has not
#: said yet that it stops the VM when its lease ends; until then a lease proves nothing.
KeptRestart = Literal["here", "elsewhere", "elsewhere_asked"]

#: What becomes of a create that fits nowhere. preempt: lower ones make room for it, else it fails.
OnNoFit = Literal["fail", "queue", "preempt"]

#: Whom VMs of a priority class may displace when there is no room.
Preempts = Literal["lower", "never"]

#: What we observe of a host's agent, and what an operator has decided about the host.
HostHealth = Literal["online", "suspect", "offline"]
AdminState = Literal["open", "cordoned", "draining", "maintenance"]

#: How it is known that a host executes nothing (`control/survive/recover.py`).
FenceMethod = Literal["lease", "command", "operator"]
