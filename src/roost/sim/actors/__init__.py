"""Who acts in a world, and what they act on.

- `planes`, `hosts` and the `database` are processes and machines; `rogue` is an agent that lies;
- `actions` does what a history says, `operators` what takes more than one request;
- `probes` is what honest agents find where the network is measured, and who measures it;
- `reading` asks for everything that can be read, `time_skip` lets time stand still meanwhile.
"""
