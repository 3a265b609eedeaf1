"""What a job may be called and run, as far as the words alone say it."""

import msgspec
import pytest

from roost.wire.jobs import ImageName


@pytest.mark.parametrize("name", ["", "debian:12", "registry.local:5000/tools/solver@sha256:ab"])
def test_an_image_has_a_name_of_a_registry(name: str) -> None:
    assert msgspec.convert(name, ImageName) == name


@pytest.mark.parametrize("name", ["--privileged", "-v/:/host", "debian 12", "debian\n12"])
def test_an_image_never_reaches_the_engine_as_an_option(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="matching regex"):
        msgspec.convert(name, ImageName)
