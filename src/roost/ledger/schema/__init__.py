"""What is stored: `tables` and `jobtables`, `amounts` that columns are made of, `rows`.

`changes` are what an event says of rows, decoded.
"""
