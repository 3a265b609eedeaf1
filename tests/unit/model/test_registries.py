"""Registries of images: which host an image is of."""

import pytest

from roost.model.registries import registry_host, registry_of


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("train", "docker.io"),
        ("train:1", "docker.io"),
        ("ours/train@sha256:ab", "docker.io"),
        ("docker.io/ours/train", "docker.io"),
        ("index.docker.io/ours/train", "docker.io"),
        ("registry.example/train", "registry.example"),
        ("Registry.Example/train", "registry.example"),
        ("registry.example:5000/a/b:1", "registry.example:5000"),
        ("localhost/train", "localhost"),
        ("evil:x@registry.example/train", "evil:x@registry.example"),
    ],
)
def test_an_image_is_of_the_host_that_engines_read(image: str, host: str) -> None:
    assert registry_of(image) == host


@pytest.mark.parametrize("host", ["registry.example", "a.b:5000", "docker.io", "localhost"])
@pytest.mark.parametrize("way", ["{}", "https://{}", "http://{}/", " {}/v2/ ", "HTTPS://{}/a/b"])
def test_a_host_is_the_same_however_it_is_written(host: str, way: str) -> None:
    assert registry_host(way.format(host)) == registry_host(host) == host


def test_docker_s_own_registry_has_one_name() -> None:
    assert registry_host("https://index.docker.io/v1/") == registry_host("docker.io") == "docker.io"
    assert registry_host("") == ""
