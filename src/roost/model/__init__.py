"""The nouns: frozen dataclasses and enums, standard library only, no I/O.

`flow.py` holds the arrows between the parts of roost; the other files hold what they speak of.
"""
