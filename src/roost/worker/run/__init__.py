"""One attempt as processes of this machine, which outlive the worker that asked for them.

`plan` is what a worker asks of a warden and what the warden says at the end, as files of the
attempt's folder; `warden` runs the processes, holds their limits and ends them wholly; `forge` is
the process from which wardens are forked; `jobuser` is the user of jobs where it is another than
the worker's; `processes` finds processes by their parents.
"""
