"""What crosses a border: bodies, messages, stored specs, and text that people write.

    bodies     the bodies of the HTTP API          agentlink  messages of agent and control
    specs      the durable VM spec as JSON         answers    the engine's answers as bodies
    translate  bodies to nouns of the model        queries    filters of lists
    text       fleet files, host tables, requests, strict YAML, decision records

Rows and events are encoded by `roost.ledger`. Nothing here decides anything.
"""
