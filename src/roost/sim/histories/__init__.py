"""What happens in a world, as data; nothing here runs.

seed --draws, follow_ups--> history <--workloads-- scenarios (shipped/*.yaml) + seed
"""
