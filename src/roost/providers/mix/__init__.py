"""The cheapest set of machines for demands that found no room: which types, and who goes where.

`problem` says what is asked and answered, `patterns` lists the ways to fill one machine, `program`
chooses among them by an integer program. All of it is pure: no clock, no chance, no I/O.
"""
