"""Stand-ins for tests: one clock moved by hand, one model agent, one model control plane.

Shipped, so that a driver, a client or a scenario outside this repository can be tested against the
same ones; nothing else that is shipped imports it. Each passes the suite of `tests/conformance`
that the real one passes too, so a stand-in cannot drift away from what it stands for.
"""
