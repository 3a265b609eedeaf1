"""What `roost serve` and `roost agent` were told on their command lines, as plain values.

The command line fills these in and hands them to `app.serve` and `app.agents`; nothing is read
from the environment here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from roost.base.units import GIB

#: The key file's name in a data folder.
KEY_NAME = "roost.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How a control-plane process runs."""

    listen: str = "127.0.0.1:7070"
    data: Path = field(default_factory=lambda: Path.home() / ".local" / "share" / "roost")
    database: str | None = None  # sqlite:///PATH or postgresql://...; None: roost.db in `data`
    key_file: Path | None = None  # of the ledger's secrets; None: KEY_NAME in `data`
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False  # a proxy in front of it keeps the connection private
    log_format: str = "text"  # text or json
    log_level: str = "info"  # debug, info, warning or error
    context: Path | None = None  # where to write server and admin token for the command line
    strategy: str = "least_loaded"  # of requests that name none
    fence_command: str | None = None  # run with a silent host's name; exit code 0 is a proof
    fence_share: float = 0.1  # of all hosts, fenced by command at a time; one always may
    recover_at_once: int = 100  # VMs restarted elsewhere at one look, the most urgent first
    heartbeat_s: float = 5.0
    lease_s: float = 60.0
    suspect_s: float = 15.0
    offline_s: float = 60.0
    worker_server: str = ""  # where rented machines reach this server; empty: where it listens
    worker_start_s: float = 600.0  # from a machine's launch until its worker speaks
    worker_silent_s: float = 60.0  # then its machine is given back and its jobs are tried again
    # What one client may cost; the defaults of `roost.api.limits` say why.
    request_s: float = 15.0
    idle_s: float = 75.0
    stalled_s: float = 15.0
    strangers: int = 1000
    readers: int = 4096
    token_readers: int = 256
    rate_limits: bool = True
    token_rate: float = 20_000.0
    address_rate: float = 200.0
    failure_rate: float = 20.0
    keep_events_days: float = 90.0
    keep_events: int = 500_000
    # What is kept of jobs that have ended, of their logs and of outputs in the data folder.
    keep_jobs_days: float = 30.0
    keep_jobs: int = 1_000_000
    keep_job_logs_days: float = 14.0
    keep_job_logs_bytes: int = 2 * GIB
    outputs_to: str = ""  # store of outputs that all machines reach; empty: the data folder
    keep_outputs_days: float = 30.0
    keep_outputs_bytes: int = 20 * GIB
    # For how many days series are kept: readings as they came, and rolled up.
    keep_readings_days: int = 7
    keep_5m_days: int = 60
    keep_1h_days: int = 400
    keep_1d_days: int = 3660
    oidc: Path | None = None  # a TOML file: whose bearer tokens are taken besides
    prometheus: str | None = None  # whose series are shown instead of those that are kept here
    prometheus_queries: Path | None = None  # a TOML file: what to ask it for each figure
    search_limit_s: float = 5.0  # of the exact search for an all-or-none batch
    pressure_bounds: Mapping[str, float] = field(default_factory=dict)  # percent, by resource
    overload_bound: float = 0.01  # of safe levels in reports
    predict_quantile: float = 0.9  # of what hosts and VMs will use: passed so seldom
    predict_hours: int = 4  # how far ahead that is
    continuous: str = "off"  # planning without being asked: off, recommend, apply
    continuous_every_s: float = 600.0
    continuous_most: int = 20  # moves of one plan
    continuous_day: int = 200  # moves in a day
    members_priority: int = 0  # the greatest that a member may give a VM
    database_wait_s: float = 300.0  # how long a start waits for a database that is away


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUs:
    """So many GPUs of one model."""

    model: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuOptions:
    """How the QEMU driver runs VMs; paths are absolute."""

    accel: Literal["auto", "tcg", "kvm"] = "auto"
    binary: str = "qemu-system-x86_64"
    cpu_model: str = ""  # empty: the host's under KVM, qemu64 under TCG
    pci: tuple[str, ...] = ()  # "vendor:device" of devices that VMs may have, beside GPUs
    bridges: tuple[str, ...] = ()  # that VMs may be on
    count_flows: tuple[str, ...] = ()  # of them: those on which it is counted who talks
    disk_bytes_s: int = 0  # the most that one VM reads and writes each second; 0: no limit
    disk_iops: int = 0  # and in how many operations; 0: no limit
    run_as: str = ""  # the user that QEMU becomes; empty: the agent's
    shared_disks: Path | None = None
    image_from: tuple[str, ...] = ("https://",)  # what the URLs of images may begin with
    image_cache_bytes: int = 20 * GIB
    default_image: Path | None = None  # what VMs boot that name nothing
    default_kernel: Path | None = None
    default_initrd: Path | None = None
    default_cmdline: str = ""
    migrate_address: str = "127.0.0.1"  # HOST or unix:DIR
    migrate_ports: tuple[int, int] = (0, 0)  # first and last; 0, 0: any
    migrate_tls: Path | None = None
    migrate_bandwidth_bytes: int = 0  # per second; 0: no limit
    migrate_limit_s: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What an agent says of its host, and how it finds a server.

    With `count` above one the process runs so many virtual hosts, NAME-01 and so on. Amounts that
    are None are read from the machine; a reserve that is None is the driver's.
    """

    name: str
    servers: tuple[str, ...]
    join_token: str | None = None  # needed the first time only
    data: Path
    driver: str = "virtual"
    zone: str = ""
    rack: str = ""
    site: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    gpus: tuple[GPUs, ...] = ()
    reserve_memory_bytes: int | None = None
    overcommit_cpu_milli: int = 1000  # thousandths: 1500 promises half as much again
    count: int = 1
    boot_s: float = 1.0  # of the virtual driver
    load: str = "steady"  # what virtual VMs do whose labels say nothing
    load_trace: Path | None = None  # what those with the load `trace` play
    qemu: QemuOptions = field(default_factory=QemuOptions)
    start_alone_after_s: float = 60.0  # after a boot, while no control plane answers
    stop_grace_s: float = 30.0  # how long a guest may take to shut down
    fence_guard: bool = False
    watchdog: str | None = None  # a device such as /dev/watchdog, for the fence guard to pet
    max_destroy: int | None = None  # VMs destroyed within ten seconds; None: a quarter of all
    probe_port: int | None = None  # of several hosts each has the next; 0: any; None: no probes
    probe_address: str = "127.0.0.1"
    log_format: str = "text"
    log_level: str = "info"
    ca_file: str | None = None
    token: str | None = None  # of the context: makes the join token when none is given
