"""LEARN: what VMs and hosts do over time, from their series. No I/O, no clock.

store      the port to where series are kept; `roost.series` and a Prometheus implement it
"""
