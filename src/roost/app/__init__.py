"""The composition root: settings read once, objects built, services started and stopped.

`serve` and `agents` (with `qemuagents`, `qemuchecks`) are the two services, `options` and
`settings` what they were told, `logs` how they speak. `warming` and `kernels` make compiled code
ready. `demo`, `demoqemu` and `childprocess` are the stages of the demos.
"""
