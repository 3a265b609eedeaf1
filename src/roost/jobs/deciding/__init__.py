"""What the planner decides, purely: whose turn it is, which machine, and how many more to rent.

planning    jobs onto machines that are there, then the cheapest mix for what is left
ordering    whose job comes next: the pool's order, projects' shares, priorities
shedding    which machines go when a limit was lowered below what is rented
experience  what machines of a type have turned out to have, against what they are called
"""
