"""Machines of Amazon EC2, rented with boto3 (extra `roost[aws]`).

`account` is what an account says (region, zones, image, subnets, prices), `answers` turns EC2's
codes and instances into ours, `provider` is the port. Tested against the moto server behind a proxy
that injects faults; no real cloud was reached.
"""
