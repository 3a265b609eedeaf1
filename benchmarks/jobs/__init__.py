"""What jobs on rented machines cost: planning, mixes of machine types, runs; answers checked."""
