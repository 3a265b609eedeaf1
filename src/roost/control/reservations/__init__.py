"""Reservations: made, placed, moved, ended; VMs whose time is over are deleted."""
