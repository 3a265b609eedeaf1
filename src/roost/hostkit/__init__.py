"""What every process of ours on a host shares, below the agent and a job's worker.

`talk` is the link to a control plane, `images` are kept by digest, `lanes` is serial work with
back-off, `files` are small files that survive a crash, `failures` say when to try again, `machine`
reads /proc and /sys and makes control groups.
"""
