"""Moves of VMs between hosts: begun, stepped to their end, taken back; and drains."""
