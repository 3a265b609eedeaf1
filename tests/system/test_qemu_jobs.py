"""Jobs on machines that are real guests: a pool rents VMs of the control plane's own fleet.

    job -> pool -> provider `roost` -> public API -> placement -> agent -> QEMU -> cloud-init
        -> `roost worker` in the guest -> the job, its output, its end -> the VM is deleted

Under software emulation a guest takes a minute or two of a core until its worker polls.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.client import Client
from roost.wire.bodies import DemandBody
from roost.wire.jobs import CreateAccount, CreatePool, SubmitJobs
from tests.guest import image_info, worker_image
from tests.system.processes import eventually
from tests.system.qemuhosts import QemuSite

pytestmark = pytest.mark.slow

#: A boot takes a minute of a core; of a machine that has other work to do, several.
BOOT_S = 1500.0
CMDLINE = "root=/dev/vda ro console=ttyS0 quiet loglevel=3 net.ifnames=0"
#: Where a guest on QEMU's own network finds the host's loopback.
HOST = "10.0.2.2"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[QemuSite]:
    """Give a control plane that is its own cloud: one host with real guests."""
    folder = worker_image().disk.parent
    made = QemuSite(tmp_path)
    try:
        made.serve(
            worker_server=f"http://{HOST}:1", worker_start_s=BOOT_S
        )  # the port is known once it listens
        made.server.kill()
        made.server.options["worker_server"] = f"http://{HOST}:{made.server.port}"
        made.serve_again(made.server)
        made.agents["one"] = made._agent("one", {"image_from": f"{folder.as_uri()}/"})
        made.wait_online(made.server, "one", 1)
        yield made
    finally:
        made.end()


@pytest.mark.turns(3)
def test_a_job_runs_in_a_guest_that_was_rented_for_it_and_is_deleted_after_it(
    site: QemuSite,
) -> None:
    with site.client(site.server) as client:
        rent_from_itself(client, site)
        made = client.submit_jobs(
            SubmitJobs(
                command=["sh", "-c", "hostname; grep -c hypervisor /proc/cpuinfo; id -un"],
                demand=DemandBody(cpu=1, memory="64MiB"),
            )
        )
        vm = eventually("a VM is rented", lambda: next(iter(client.all_vms()), None))
        assert vm.labels["roost-pool"] == "default"

        eventually("it has ended", lambda: client.get_array(made.id).finished_at, BOOT_S, 1.0)

        (job,) = client.list_jobs(made.id, limit=10).jobs
        assert (job.state, job.attempt) == ("completed", 1)
        assert client.jobs.log(job.id).split() == [vm.name, "1", "root"]
        assert job.cost_micro > 0
        eventually("the pool is empty", lambda: not client.get_pool("default").machines, 120)
        eventually("no guest is left", lambda: not site.qemu_hosts(vm), 120)
        eventually("its VM is deleted", lambda: not list(client.all_vms()), 120)
        site.doctor(site.server)


def rent_from_itself(client: Client, site: QemuSite) -> None:
    """Make a pool whose machines are VMs of the same control plane."""
    images = {
        name: "{0.digest}={0.url}".format(image_info(path))
        for name, path in zip(("kernel", "initrd", "image"), worker_image(), strict=True)
    }
    client.create_account(
        CreateAccount(
            name="itself", provider="roost", credentials={"token": site.token},
            options={
                "server": site.server.url, "types": "small=1/448MiB/3.60", "cmdline": CMDLINE,
                **images,
            },
        )
    )  # fmt: skip
    client.create_pool(
        CreatePool(
            name="default", provider="roost", account="itself", max_machines=1, idle_grace_s=1
        )
    )
