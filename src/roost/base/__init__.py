"""What every layer shares, none of it about VMs.

`errors` with stable codes, `units` from text to whole numbers, `backoff`, `clock` and `ids`
as things to hand in, `timestamps` for people to read.
"""
