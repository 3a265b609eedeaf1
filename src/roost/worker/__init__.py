"""The worker of a rented machine: pulls attempts, runs them, says how they ended.

`worker` polls the control plane and keeps what it is told, `attempts` carries one attempt from its
inputs to its report, `run` is its processes, `containers` its image, `files` are inputs, outputs
and logs, `store` is what a worker must know after it was killed, `capacity` what the machine has,
`notices` tells when it is taken away, `plane` is the link to the control plane.
"""
