"""Where machines are rented: one port and those who fill it.

`base` is the port and `errors` what a provider answers besides machines, named for what the caller
does next. Nothing here knows of jobs, pools or the ledger.
"""
