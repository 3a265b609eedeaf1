"""What a cold move says when its disk could not be sent."""

from roost.agent.drivers.qemu.move.coldcopy import plain_words

REFUSED = (
    """qemu-img: Could not open 'json:{"driver": "raw", "file": {"driver": "nbd", "server": """
    """{"type": "inet", "host": "10.0.0.2", "port": "40101"}, "export": "disk0"}}': """
    "Failed to connect to '10.0.0.2:40101': Connection refused\n"
)


def test_a_target_that_is_gone_is_told_without_json() -> None:
    assert plain_words(REFUSED, 1) == (
        "qemu-img: Could not open the disk at the target: "
        "Failed to connect to '10.0.0.2:40101': Connection refused"
    )


def test_a_copy_that_was_killed_has_a_reason_too() -> None:
    assert plain_words("", -9) == "qemu-img was killed by signal 9 and said nothing"
    assert plain_words(" \n", 3) == "qemu-img ended with status 3 and said nothing"
