"""Bodies that are nested deeper than anything means are refused, whatever field they are in."""

import pytest

from roost.api.errors import Malformed
from roost.api.reading import RequestDecoder
from roost.wire.constraints import CreateConstraint


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
def test_a_tree_without_end_is_malformed(depth: int) -> None:
    tree = b'{"right":' * depth + b"1" + b"}" * depth
    with pytest.raises(Malformed, match="nested too deep"):
        RequestDecoder(CreateConstraint).decode(b'{"name":"r","expression":' + tree + b"}")
