"""Priority classes as objects: `classes.py` has the use cases, `routes.py` their paths."""
