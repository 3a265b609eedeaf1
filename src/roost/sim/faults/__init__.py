"""What goes wrong in a world.

- `kinds` is every kind of fault, and where it has struck;
- `of_hosts` are full disks and failing hypervisors, `slow` is what is late or fails for a while;
- `disasters` befall the database as a whole.
"""
