"""Sequences that steer a terminal: taken out of whatever others wrote, before it is shown.

Names, labels, messages of agents, logs of jobs and consoles of guests reach an operator's screen; a
sequence in them could clear it, retitle it or fill the clipboard. Tables and sentences are clean
everywhere; of logs, consoles and JSON, files and pipes get every byte.
"""

import re

#: CSI, OSC and the like, and other control characters but tab, new line and carriage return.
STEERING = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)

#: What JSON leaves as it is, and a terminal may take for the beginning of a sequence.
_HIGH = re.compile(r"[\x7f-\x9f]")


def unsteered(text: str) -> str:
    """Return text without what would steer a terminal."""
    return text if text.isprintable() else STEERING.sub("", text)


def escaped(text: str) -> str:
    """Return JSON with the control characters above ASCII written as escapes; it means the same."""
    return _HIGH.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
