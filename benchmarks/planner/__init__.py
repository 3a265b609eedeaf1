"""Quality and speed of the planner's search on public instances and made fleets."""
