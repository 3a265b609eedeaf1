"""What a world stands on, without knowing roost's own nouns.

- `loop` is virtual time, `clocks` are the machines' own, which drift, jump and stand still;
- `lives` end a process without clean-up; `unhandled` hears exceptions that nobody handled;
- `network` carries messages late, lost, twice or not at all.
"""
