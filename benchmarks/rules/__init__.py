"""What rules cost: decisions under rules beside decisions without, answers checked."""
