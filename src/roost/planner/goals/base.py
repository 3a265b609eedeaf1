"""What every goal is: a generator of proposals that is told which moves were made."""

from collections.abc import Generator

from roost.planner.guards import Exchange, Proposal, Veto

#: A goal yields proposals, is sent whether each was made, and returns the VMs that it cannot move.
Proposals = Generator[Proposal | Exchange, bool, tuple[Veto, ...]]
