"""Packing benchmark: published placement protocols replayed, and roost's rule beside them.

`huawei` and `openb` each hold one protocol as a compiled kernel, `slots` holds the formula both
share, `shipped` asks the real engine, and `main` prints the table. Trace files are read from a data
folder and are no part of this repository.
"""
