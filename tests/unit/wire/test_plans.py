"""Plans as servers of other releases tell them."""

import msgspec

from roost.wire.plans import PictureBody, PlanBody

PICTURE = PictureBody(**dict.fromkeys(PictureBody.__struct_fields__, 0))


def test_a_plan_of_a_server_that_does_not_say_what_does_not_converge_is_read() -> None:
    made = PlanBody(
        id="plan-1", goal="balance", state="planned", why="", generation=1, moves=0, done=0,
        failed=0, moving=0, waves=0, wave=0, replans=0, eta_s=0.0, sent_bytes=0, stand_still_s=0.0,
        blockers=0, before=PICTURE, after=PICTURE, start=None, end=None, windows=[],
        created_at="", created_by="", begun_at=None, ended_at=None,
    )  # fmt: skip
    told = msgspec.to_builtins(made)
    told.pop("not_converging", None)
    assert msgspec.convert(told, PlanBody) == made
    assert made.not_converging == "auto_converge"
