"""Goals: what a plan is for. One file each; a goal is a generator of proposals.

    move, drain, repair       ordered by an operator, or by a broken rule
    balance, headroom         loads: of all hosts, or of those that run short
    consolidate, defragment   room: whole hosts, or a place for one large VM
    spare                     room: to lose hosts and restart all that ran there (N+k)
    talkers                   nearness: VMs beside those they talk with

A goal gets a board and yields `Proposal`s. For each it is sent whether the move was made: guards
may veto, and then the board is as it was.
"""
