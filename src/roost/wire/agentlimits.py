"""The limits of the agents' protocol: every number, text and list that an agent may send, as types.

An agent is trusted about its own host and about nothing else, so whatever it says is bounded here,
by the type of its field in `agentlink.py`, and refused where it is decoded: nothing behind the
decoder meets a number that its columns, its database or its log cannot take. A test walks every
field of every message and fails on one without a bound. Limits are far above what any honest host
says: they are there for nonsense, not for planning.
"""

from typing import Annotated

from msgspec import Meta

from roost.base.units import MAX_AMOUNT
from roost.model.hosts import MOST_PARTS

# Numbers

#: Largest of what is only counted: no database stores more than 63 bits.
MOST_COUNT = 2**62
#: Generations of a VM, as hosts say them and as the ledger may reach them.
MOST_GENERATION = 2**62
#: How far beyond the ledger a host's generation may be and still be believed after a restore: each
#: change of a VM takes one, each settled restore takes 2^20 (`survive/restore_apply.py`).
MOST_AHEAD = 2**26

Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
Generation = Annotated[int, Meta(ge=0, le=MOST_GENERATION)]
Amount = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
Ratio = Annotated[int, Meta(ge=1, le=1_000_000)]
ProtocolNumber = Annotated[int, Meta(ge=0, le=1_000_000)]
MostVMs = Annotated[int, Meta(ge=0, le=1_000_000)]
#: What a fence guard may need to stop everything: after a start of the control plane all recovery
#: waits for the slowest of them.
GuardSeconds = Annotated[float, Meta(ge=0.0, le=120.0)]
Reading = Annotated[float, Meta(ge=-1e18, le=1e18)]
#: What a probe found: a round trip in ms, a rate in Mbit/s. A rate of nothing is no measurement.
ProbeMs = Annotated[float, Meta(ge=0.0, le=1e6)]
ProbeMbit = Annotated[float, Meta(ge=1e-3, le=1e9)]

# Texts: words have no control characters, so that they can stand in a log line, a key or a table

_PRINTED = r"^[^\x00-\x1f\x7f]*\Z"
#: How long what a driver says in its own words may be; agents cut it (`clipped`).
MOST_TEXT = 8192

Id = Annotated[str, Meta(min_length=1, max_length=128, pattern=_PRINTED)]
Word = Annotated[str, Meta(max_length=128, pattern=_PRINTED)]
Name = Annotated[str, Meta(min_length=1, max_length=253, pattern=_PRINTED)]
Label = Annotated[str, Meta(max_length=253, pattern=_PRINTED)]
ResourceName = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[^\x00-\x1f\x7f:]*\Z")]
Address = Annotated[str, Meta(max_length=1024, pattern=_PRINTED)]
Card = Annotated[str, Meta(max_length=17, pattern=_PRINTED)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
#: How long the last order of a held VM may be; a longer one is not told.
MOST_ORDER = 4096
OrderText = Annotated[str, Meta(max_length=MOST_ORDER)]
ConsoleText = Annotated[str, Meta(max_length=2**21)]

# How many of each in one message

#: VMs that one host may speak of, and records of VMs that it has destroyed beside them.
MOST_VMS = 16_384
MOST_COPIES = 65_536
MOST_HELD = 4_096
MOST_SAMPLES = 32_768
#: Pairs of VM and card that one host tells of at a time, those with the most bytes.
MOST_FLOWS = 256

MANY_VMS = Meta(max_length=MOST_VMS)
MANY_COPIES = Meta(max_length=MOST_COPIES)
MANY_HELD = Meta(max_length=MOST_HELD)
MANY_SAMPLES = Meta(max_length=MOST_SAMPLES)
MANY_FLOWS = Meta(max_length=MOST_FLOWS)
MANY_PARTS = Meta(max_length=MOST_PARTS)
MANY_RESOURCES = Meta(max_length=32)
MANY_LABELS = Meta(max_length=256)
MANY_TAINTS = Meta(max_length=64)
MANY_CAPABILITIES = Meta(max_length=256)
MANY_READINGS = Meta(max_length=64)
MANY_ENDPOINTS = Meta(max_length=16)

#: The largest message of which single entries are left out; a larger one is refused as a whole, for
#: to take it apart costs many times its size.
MOST_MENDED_BYTES = 2**21

# In one conversation, and in the fleet as a whole

#: Hellos of one connection; an honest agent says one.
MOST_HELLOS = 4
#: Names of device models, and of extended resources, that one host may bring into the fleet while
#: a process lives: the fleet has room for so many names in all (`fleet/hosts.py`).
MOST_MODELS_BROUGHT, MOST_RESOURCES_BROUGHT = 16, 32


def clipped(text: str) -> str:
    """Return a driver's words cut to what the protocol takes; the end is said to be missing."""
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 6] + " [...]"
