"""`roost replay`: take a recorded decision again and compare."""
