"""Plans of moves: drafted on a copy of the fleet, kept as rows, carried out wave by wave.

plans      the part that is asked: create, list, show, apply, pause, resume, cancel
gathering  the board that plans are drafted on: fleet, VMs, budgets, cool-downs, dirty rates
executing  the part that carries plans out, one process for all, whatever dies meanwhile
settling   what became of a move, read from its VM's row
writing    rows and events
record     what is kept of a plan as JSON
reading    plans as users see them
quiet      do-not-disturb periods of VMs
checking   what a doctor should know
routes     plans over HTTP
"""
