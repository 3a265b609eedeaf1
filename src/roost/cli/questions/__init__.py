"""Questions of the engine, asked of a server or of a fleet file.

`place`, `explain`, `capacity`, `info` and `recommend` are about a VM or a host, `strategies` and
`replay` about decisions, `analyze` about what VMs and hosts use over time.
"""
