"""Commands that stay: follow events, wait for an end, watch a move, attach to a console."""
