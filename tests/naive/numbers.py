"""Twins of the arithmetic: ratios, draws and the group table's hash, in Python's big integers."""

RATIO_ONE = 2**30

#: One whole score: ten tenths of a ratio.
SCORE_ONE = 10 * RATIO_ONE

#: Weights of preferences and soft groups are hundredths of a whole score.
WEIGHT_ONE = SCORE_ONE // 100

#: The reference host that free amounts are measured against: 64 cores, 256 GiB, 4 TiB.
REFERENCE = {"cpu": 64_000, "memory": 256 * 2**30, "disk": 4 * 2**40}

#: Eight whole devices, in thousandths.
REFERENCE_DEVICES = 8_000

#: Tenths of the score that each base resource has.
WEIGHTS = {"cpu": 4, "memory": 4, "disk": 2}


def ratio(part: int, whole: int) -> int:
    """Return floor(part x 2^30 / whole); nothing counts 0, 2^24 wholes and more as 2^24."""
    if part <= 0 or whole <= 0:
        return 0
    if part >= 2**24 * whole:
        return 2**24 * RATIO_ONE
    return part * RATIO_ONE // whole


def draw(seed: int, number: int, count: int) -> int:
    """Return the number-th pseudo-random integer below `count` of a seed."""
    word = number % 2**31
    for piece in (seed % 2**31, seed // 2**31 % 2**31, seed // 2**62 % 2**31):
        word ^= piece
        for _ in range(2):
            word = (word ^ word // 2**15) * 0x2C1B3C6D % 2**31
            word = (word ^ word // 2**12) * 0x297A2D39 % 2**31
        word ^= word // 2**16
    return word * count // 2**31


def find_entry(keys: list[int], key: int) -> int:
    """Return the entry that holds a key, or the first empty one after its place; -1 is empty."""
    high, low = divmod(key, 2**32)
    mixed = (high * 40503 + low) % 2**31
    start = mixed * 2654435761 // 2**15 % len(keys)
    for step in range(len(keys)):
        at = (start + step) % len(keys)
        if keys[at] in (key, -1):
            return at
    raise AssertionError("the table is full")
