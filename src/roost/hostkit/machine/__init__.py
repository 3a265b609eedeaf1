"""The machine that processes of ours run on: small files of /proc and /sys, control groups."""
