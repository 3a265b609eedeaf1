"""ASK: the HTTP door to the control plane's use cases.

`routes` is the one table: every route with its roles, bodies and statuses. `calls` runs a route,
`guard` decides who may, `errors` gives every refusal its one shape, and the document of the API is
written from the same table. Two roads pass the table by for speed and are held to it by tests:
`fastlane` (creating VMs) and `agentsocket` (the agents). Nothing here decides about VMs.
"""
