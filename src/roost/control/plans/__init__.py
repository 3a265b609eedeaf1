"""Plans of moves: drafted on a copy of the fleet, kept as rows, carried out wave by wave.

plans         the part that is asked: create, list, show, apply, pause, resume, cancel
planning      drafts on a copy of the fleet, in a thread
gathering     the board of a draft: fleet, VMs, budgets, cool-downs, dirty rates
recommending  what is wrong with the fleet, and what a plan would do about it
keepingroom   holds on the targets of moves that have not begun
executing     the part that carries plans out, one process for all, whatever dies meanwhile
continuous    plans that nobody asked for: off, recommended or applied, within limits
continuouslimits  those limits
forgetting    plans that ended long ago are deleted
maintaining   hosts in groups that may be away together
ordering      how a move is ordered: with post-copy, slowed down, or neither
settling      what became of a move, read from its VM's row
watching      what is heard of moves under way: progress, reasons, downtime
writing       rows and events
record        what is kept of a plan as JSON
reading       plans as users see them
windowing     windows: given, in maintenance times, or at a foreseen trough
opening       whether a plan may begin moves at a moment
daytimes      times of day in labels
quiet         do-not-disturb periods of VMs
checking      what a doctor should know
routes        plans over HTTP
"""
