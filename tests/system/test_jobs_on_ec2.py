"""A sweep on machines of EC2: rented from moto on a bad day, run by real workers, given back.

Inputs come from S3, and outputs go there: moto's too.
"""

from hashlib import sha256

import pytest

from roost.client import Client
from roost.wire.bodies import DemandBody
from roost.wire.jobs import CreateAccount, CreatePool, InputBody, OutputBody, SubmitJobs
from tests.system.ec2machines import REGION, ZONES, machines_of_ec2, processes_of
from tests.system.processes import Site, eventually

pytestmark = pytest.mark.slow

THREE = f"sha256:{sha256(b'3').hexdigest()}"


def test_a_sweep_on_ec2_survives_a_reclaimed_machine_and_the_pool_goes_back_to_nothing(
    site: Site,
) -> None:
    pytest.importorskip("moto", reason="pip install 'moto[server,ec2,s3]'")
    folder, items = site.folder / "ec2", list(range(10))
    folder.mkdir()
    with machines_of_ec2(folder) as (ec2, address):
        # A bad day: one zone has nothing, one answer is lost after its work was done, one refused.
        ec2.proxy.empty_zones = {ZONES[0]}
        ec2.proxy.faults = ["lost answer", "throttled"]
        ec2.put("given", {"factor": b"3"})
        ec2.put("kept", {})
        server = site.serve(worker_silent_s=15)
        with site.client(server) as client:
            client.create_account(
                CreateAccount(
                    name="ec2", provider="aws",
                    options={
                        "region": REGION, "zones": ",".join(ZONES), "image": "ami-12c6146b",
                        "prices": "t3.micro=0.0104", "endpoint": address,
                    },
                    credentials={"access_key": "key", "secret_key": "a-secret-of-the-account"},
                )
            )  # fmt: skip
            client.create_pool(
                CreatePool(
                    name="default", provider="aws", account="ec2", market="spot", max_machines=3,
                    on_demand_base=1, idle_grace_s=1,
                )
            )  # fmt: skip
            # Whether what ran on the machine that was taken away ran again is seen by attempts.
            work = "sleep 3; echo $(( {item} * {item} )); echo $(( {item} * $(cat factor) )) >out"
            made = client.submit_jobs(
                SubmitJobs(
                    command=["sh", "-c", work], items=items,
                    demand=DemandBody(cpu=1, memory="128MiB"),
                    inputs=[InputBody(name="factor", url="s3://given/factor", digest=THREE)],
                    outputs=[OutputBody(name="out")], outputs_to="s3://kept/sweep",
                )
            )  # fmt: skip
            victim = eventually(
                "a job runs on a spot machine", lambda: _spot_at_work(client, made.id), within_s=150
            )
            ec2.proxy.reclaimed.add(victim)
            eventually(
                "its worker has heard that it goes, and the plane from it",
                lambda: _state(client, victim) in ("draining", "returning", "returned"),
                within_s=60,
            )
            ec2.take_away(victim)

            eventually(
                "all have ended", lambda: client.get_array(made.id).finished_at, within_s=200
            )
            array = client.get_array(made.id)
            assert (array.state, array.jobs.completed) == ("completed", len(items))
            found = client.list_jobs(made.id, limit=100).jobs
            assert [client.jobs.log(job.id) for job in found] == [f"{n * n}\n" for n in items]
            kept = [client.get_job(job.id).outputs for job in found]
            assert [[each.name for each in outputs] for outputs in kept] == [["out"]] * len(items)
            assert [ec2.read(outputs[0].url) for outputs in kept] == [
                b"%d\n" % (3 * n) for n in items
            ]
            assert array.cost_micro > 0
            eventually(
                "the pool is empty", lambda: not client.get_pool("default").machines, within_s=120
            )
            eventually("nothing is paid for", lambda: not ec2.living(), within_s=120)
            bill = client.job_stats(account="ec2")
            assert bill.jobs.completed == len(items)
            assert bill.rent_micro >= bill.cost_micro > 0
            assert bill.running_machines == 0
            assert not ec2.proxy.faults, "not every fault was met"
            assert len(ec2.started) == len(set(ec2.started)) == ec2.proxy.launches
            for text in (path.read_text(errors="replace") for path in folder.glob("*/console")):
                assert "a-secret-of" not in text
        assert server.stop() == 0
    assert processes_of(folder) == []


def _spot_at_work(client: Client, array: str) -> str:
    """Return the instance of a spot machine that runs a job, empty if there is none yet."""
    spot = {m.id: m for m in client.list_machines("default").machines if m.market == "spot"}
    for job in client.list_jobs(array, limit=100).jobs:
        if job.state == "running" and job.machine in spot:
            return spot[job.machine].cloud_id or ""
    return ""


def _state(client: Client, cloud_id: str) -> str:
    machines = client.list_machines("default", ended=True, limit=100).machines
    return next((each.state for each in machines if each.cloud_id == cloud_id), "")
