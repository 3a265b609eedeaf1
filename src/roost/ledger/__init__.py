"""COMMIT: the durable truth. Rows, claims conditional by value, and events in the same transaction.

Only `parts`, `control`, `jobs`, `app` and `sim` may import it. From the top: what stands higher may
import what stands lower.

- `opening`: the store that a URL names
- `sqlite`, `postgres`: the two databases
- `store`: the port that both implement; `upgrade`: the schema's history, and processes of the
  release before; `upkeep`: what must hold, what is kept how long, events that are folded
- `claims`: room that is promised: many creates in one transaction, capacity, holds
- `writes`: a transaction and its events; `migrations`: the revisions of the schema
- `schema`: tables, rows, amounts
"""
