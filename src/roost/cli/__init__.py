"""The command `roost`: one file per noun or question, each a thin shell around client or engine.

`main` lists every command in one literal table and loads only the one that is asked for; what a
command needs of the engine it imports when it runs, so that asking a server stays quick. Answers go
to standard output, as tables or as one JSON or YAML document; notes go to standard error. Exit code
0 means done, 1 that the answer is no (no host fits), anything else is an error of
`roost.base.errors`.
"""
