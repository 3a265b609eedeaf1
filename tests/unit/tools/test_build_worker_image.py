"""The builder of images for rented VMs: what it copies is all that a worker imports."""

import importlib.machinery
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

_TOOL = Path(__file__).parents[3] / "tools" / "build-worker-image"
_IMPORTS = """
import sys
before = [*sys.modules.values()]  # what the environment's own start has loaded is no import of ours
import httpx
import roost.app.workers, roost.cli.main, roost.cli.running.worker
httpx.AsyncClient()
found = {getattr(each, "__file__", None) or "" for each in list(sys.modules.values())
         if each not in before}
print("\\n".join(each for each in found if "site-packages" in each))
"""


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """Return the tool as a module."""
    loader = importlib.machinery.SourceFileLoader("build_worker_image", str(_TOOL))
    spec = importlib.util.spec_from_loader("build_worker_image", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.dont_write_bytecode", True)
        loader.exec_module(module)
    return module


def test_every_distribution_that_a_worker_imports_is_copied(builder: ModuleType) -> None:
    words = [sys.executable, "-c", _IMPORTS]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    tops = {re.split(r"[/.]", each.split("site-packages/")[1])[0] for each in said.split()}
    owners = importlib.metadata.packages_distributions()
    needed = {owners[top][0].lower().replace("_", "-") for top in tops if top in owners}

    # The guest's own Python has attrs: its cloud-init is written with it.
    assert needed - {"attrs", "roost"} <= set(builder.DISTRIBUTIONS)
    assert {"httpx", "msgspec", "uvloop"} <= needed


def test_of_what_describes_aws_only_s3_is_copied(builder: ModuleType) -> None:
    names = ["botocore/data/s3/2006-03-01/x", "botocore/data/ec2/x", "botocore/data/endpoints.json"]
    assert [builder.is_kept(each) for each in names] == [True, False, True]
    assert builder.is_kept("botocore/session.py")


def test_the_newest_images_stay(builder: ModuleType, tmp_path: Path) -> None:
    for number in range(builder.IMAGES + 2):
        (tmp_path / f"worker-{number}").mkdir()
    builder.remove_old(tmp_path)
    assert len(list(tmp_path.iterdir())) == builder.IMAGES
