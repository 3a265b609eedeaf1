"""The command `roost`: one file per command, each a thin shell around the engine.

Answers go to standard output, as tables or as one JSON document; notes go to standard error. Exit
code 0 means done, 1 that the answer is no (no host fits), anything else is an error of
`roost.base.errors`.
"""
