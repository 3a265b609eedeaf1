"""ASK: the HTTP door to the control plane's use cases.

The table of routes is the plane's: every line with its roles, bodies and statuses (`parts.routes`).
`calls` runs a route, `authorize` decides who may, `errors` gives every refusal its one shape, and
the document of the API is written from the same table. Two roads pass the router by for speed and
are held to it by tests: `fastlane` (hot routes) and `agentsocket` (the agents). Nothing here knows
a use case.
"""
