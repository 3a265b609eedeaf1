"""Stories on a cluster: files, what happens when, the real descheduler, and the report."""
