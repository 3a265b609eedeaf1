"""What VMs and hosts use over time: readings in, series out. The store is handed in.

recording   agents' readings into the store, in batches, off every other path
keeping     one process files and rolls up what was written, and deletes what is too old
reading     series as bodies of the API, and series of elsewhere brought in
routes      both over HTTP
"""
