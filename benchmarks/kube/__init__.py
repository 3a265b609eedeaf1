"""The same nodes and the same requests through kube-scheduler and through roost, side by side.

    kube-scheduler   real: pods are there, the scheduler starts; API server and etcd (with fsync)
    engine           roost's engine in this process, on the fleet translated from those nodes
    durable API      `roost serve` on SQLite: a request is answered when its claim is on the disk

Only the last is a fair comparison of two whole systems. `python -m benchmarks.kube --help`.
"""
