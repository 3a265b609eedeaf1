"""The command `roost`: one file per noun or question, each a thin shell around client or engine.

`main` lists every command in one literal table and loads only the one that is asked for; what a
command needs of the engine it imports when it runs, so that asking a server stays quick. Answers go
to standard output, as tables or as one JSON or YAML document; notes go to standard error. Exit code
0 means done, 1 that the answer is no (no host fits), anything else is an error of
`roost.base.errors`.

- `topics`: `roost help`, the documents and the help of any command
- `vms`: VMs, their settings, moves, groups and flavors
- `steering`: rules, policies, priorities, reservations: where VMs may go, and who goes first
- `fleet`: hosts, the network, plans of moves, maintenance, events, files that say how it should be
- `rented`: jobs, pools of machines, accounts
- `access`: projects, tokens, contexts
- `questions`: what the engine answers, of a server or of a fleet file
- `running`: processes of roost, and what is done to their database
- `kube`, `demo`: the commands of `roost kube`; the tours of `roost demo`
- `watch`, `words`, `show`: commands that stay; what a user types; what a user sees
"""
