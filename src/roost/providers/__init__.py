"""Where machines are rented: one port and those who fill it.

`base` is the port and `errors` what a provider answers besides machines, named for what the caller
does next; `offers` reads machine types, `bootstrap` writes what a machine does first, `mix` finds
the cheapest set of types. `local`, `fleet`, `aws` and `azure` fill the port. Nothing here knows of
jobs, pools or the ledger.
"""
