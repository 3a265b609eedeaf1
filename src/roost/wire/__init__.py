"""The only home of serialisation: fleet files, imports, and answers as plain JSON-able dicts.

`words` cuts text into words that know where they were typed; `hostwords` and `requestwords` give
the words their meaning and write them back; `fleetfile`, `hostcsv` and `ganeti` read whole files;
`answers` turns what the engine says into dicts. Nothing here decides anything.
"""
