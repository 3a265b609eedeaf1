"""What simulated worlds cost, and what they find."""
