"""Files of a job: what is fetched before, what is kept after, and what it wrote meanwhile.

`urls` reads and writes by the scheme of an address (file:, http:, https:, s3:), `inputs` and
`outputs` do so for one attempt, `logs` cuts what was written into pieces to send.
"""
