"""Jobs, pools, accounts and the workers' own calls in both clients: their calls and methods."""

from roost.client.binding import Method
from roost.client.calls import API, Call, nothing, path, query, reads
from roost.wire import jobs as w
from roost.wire import workerlink as link

_array, _pool = reads(w.ArrayDetail), reads(w.PoolBody)
_account, _kind = reads(w.AccountBody), reads(w.JobKindBody)


# Jobs


def submit_jobs(jobs: w.SubmitJobs, *, key: str | None = None) -> Call[w.ArrayDetail]:
    """Submit a job, or an array of them in one call."""
    return Call("POST", path("jobs"), _array, body=jobs, creates=True, key=key)


def list_arrays(
    *,
    project: str | None = None,
    pool: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Call[w.ArrayPage]:
    """Return one page of what was submitted, the newest first."""
    asked = query(project=project, pool=pool, state=state, limit=limit, after=after)
    return Call("GET", path("job-arrays"), reads(w.ArrayPage), asked)


def get_array(job: str, *, wait_s: float | None = None) -> Call[w.ArrayDetail]:
    """Return what was submitted in one call; with `wait_s`, wait for its end so long."""
    return Call("GET", path("job-arrays", job), _array, query(wait_s=wait_s))


def list_jobs(
    array: str, *, state: str | None = None, limit: int | None = None, after: str | None = None
) -> Call[w.JobPage]:
    """Return one page of the jobs of an array."""
    asked = query(array=array, state=state, limit=limit, after=after)
    return Call("GET", path("jobs"), reads(w.JobPage), asked)


def get_job(job: str) -> Call[w.JobDetail]:
    """Return a job with its attempts."""
    return Call("GET", path("jobs", job), reads(w.JobDetail))


def cancel_jobs(job: str) -> Call[w.CancelledBody]:
    """Cancel a job, or all jobs of an array."""
    return Call("POST", path("jobs", job, "cancel"), reads(w.CancelledBody))


def read_job_log(
    job: str,
    *,
    stream: str | None = None,
    attempt: int | None = None,
    start: int | None = None,
    limit: int | None = None,
) -> Call[w.LogBody]:
    """Return a piece of what a job has written."""
    asked = query(stream=stream, attempt=attempt, start=start, limit=limit)
    return Call("GET", path("jobs", job, "logs"), reads(w.LogBody), asked)


def read_job_output(
    job: str, *, name: str, start: int | None = None, limit: int | None = None
) -> Call[w.OutputPiece]:
    """Return a piece of a file that a job has kept in the server's own store."""
    asked = query(name=name, start=start, limit=limit)
    return Call("GET", path("jobs", job, "outputs"), reads(w.OutputPiece), asked)


def explain_job(job: str) -> Call[w.ExplainBody]:
    """Return why a job is not running."""
    return Call("GET", path("jobs", job, "explain"), reads(w.ExplainBody))


def job_stats(
    *, project: str | None = None, pool: str | None = None, account: str | None = None
) -> Call[w.StatsBody]:
    """Return counts, hours and money of jobs."""
    asked = query(project=project, pool=pool, account=account)
    return Call("GET", path("job-stats"), reads(w.StatsBody), asked)


# Kinds


def list_job_kinds() -> Call[w.JobKindPage]:
    """Return all job kinds."""
    return Call("GET", path("job-kinds"), reads(w.JobKindPage))


def get_job_kind(name: str) -> Call[w.JobKindBody]:
    """Return a job kind."""
    return Call("GET", path("job-kinds", name), _kind)


def create_job_kind(kind: w.CreateJobKind) -> Call[w.JobKindBody]:
    """Make a job kind."""
    return Call("POST", path("job-kinds"), _kind, body=kind, repeatable=False)


def delete_job_kind(name: str) -> Call[None]:
    """Delete a job kind; its jobs stay."""
    return Call("DELETE", path("job-kinds", name), nothing)


# Pools


def list_pools() -> Call[w.PoolPage]:
    """Return all pools."""
    return Call("GET", path("pools"), reads(w.PoolPage))


def get_pool(name: str) -> Call[w.PoolBody]:
    """Return a pool."""
    return Call("GET", path("pools", name), _pool)


def create_pool(pool: w.CreatePool) -> Call[w.PoolBody]:
    """Make a pool of machines."""
    return Call("POST", path("pools"), _pool, body=pool, repeatable=False)


def change_pool(name: str, change: w.ChangePool) -> Call[w.PoolBody]:
    """Change a pool; what the change leaves out stays."""
    return Call("POST", path("pools", name, "change"), _pool, body=change)


def delete_pool(name: str) -> Call[None]:
    """Delete a pool that has neither jobs nor machines."""
    return Call("DELETE", path("pools", name), nothing)


def list_machines(
    pool: str, *, ended: bool | None = None, limit: int | None = None, after: str | None = None
) -> Call[w.MachinePage]:
    """Return one page of a pool's machines, the newest first."""
    asked = query(ended=None if ended is None else str(ended).lower(), limit=limit, after=after)
    return Call("GET", path("pools", pool, "machines"), reads(w.MachinePage), asked)


# Accounts


def list_accounts() -> Call[w.AccountPage]:
    """Return all accounts, without their credentials."""
    return Call("GET", path("accounts"), reads(w.AccountPage))


def get_account(name: str) -> Call[w.AccountBody]:
    """Return an account, without its credentials."""
    return Call("GET", path("accounts", name), _account)


def create_account(account: w.CreateAccount) -> Call[w.AccountBody]:
    """Make an account with a provider."""
    return Call("POST", path("accounts"), _account, body=account, repeatable=False)


def change_account(name: str, change: w.ChangeAccount) -> Call[w.AccountBody]:
    """Change an account; what the change leaves out stays."""
    return Call("POST", path("accounts", name, "change"), _account, body=change)


def delete_account(name: str) -> Call[None]:
    """Delete an account that no pool uses."""
    return Call("DELETE", path("accounts", name), nothing)


# Workers


def join_worker(body: link.WorkerJoin, join_token: str) -> Call[link.WorkerJoined]:
    """Exchange a join token for the credential of one machine."""
    return Call(
        "POST", f"{API}/worker/join", reads(link.WorkerJoined), body=body, bearer=join_token
    )


def poll_worker(body: link.WorkerPoll) -> Call[link.WorkerOrders]:
    """Say what a machine has, and learn what it should have."""
    return Call("POST", f"{API}/worker/poll", reads(link.WorkerOrders), body=body)


def send_logs(body: link.WorkerLogs) -> Call[link.LogsTaken]:
    """Send pieces of logs."""
    return Call("POST", f"{API}/worker/logs", reads(link.LogsTaken), body=body)


class JobMethods:
    """What clients do with jobs, pools, accounts, and as workers."""

    submit_jobs = Method(submit_jobs)
    list_arrays = Method(list_arrays)
    get_array = Method(get_array)
    list_jobs = Method(list_jobs)
    get_job = Method(get_job)
    cancel_jobs = Method(cancel_jobs)
    read_job_log = Method(read_job_log)
    read_job_output = Method(read_job_output)
    explain_job = Method(explain_job)
    job_stats = Method(job_stats)
    list_job_kinds = Method(list_job_kinds)
    get_job_kind = Method(get_job_kind)
    create_job_kind = Method(create_job_kind)
    delete_job_kind = Method(delete_job_kind)
    list_pools = Method(list_pools)
    get_pool = Method(get_pool)
    create_pool = Method(create_pool)
    change_pool = Method(change_pool)
    delete_pool = Method(delete_pool)
    list_machines = Method(list_machines)
    list_accounts = Method(list_accounts)
    get_account = Method(get_account)
    create_account = Method(create_account)
    change_account = Method(change_account)
    delete_account = Method(delete_account)
    join_worker = Method(join_worker)
    poll_worker = Method(poll_worker)
    send_logs = Method(send_logs)
