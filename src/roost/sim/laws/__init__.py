"""The laws of a world, by arithmetic of their own: they read rows and never ask what they judge.

- `checking` is the table of laws and when each is checked;
- `books` is the ledger as its events tell it, `guests` says where each guest's state is;
- `ruled`, `reserved` and `roommade` are the laws of hard rules, reservations and preemption.
"""
