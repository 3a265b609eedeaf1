"""The fleet: `hosts` with `hostsettings`, `topology`, `plans`, `maintenance`, `events`.

`applying` brings all of it to what files say.
"""
