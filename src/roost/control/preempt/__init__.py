"""Preemption: room for a VM that waits is made by VMs of lower priority.

record      what is kept of a preemption, and as users see it
choosing    who would make room, asked of the engine and of the disruption budgets
beginning   a preemption written down, its free room held
displacing  a VM stopped for another one, and put into the queue
tending     one process sees every preemption to its end
arriving    the VM for which room was made takes it
asking      preemptions over HTTP: listed, tried, asked for
routes      their paths
"""
