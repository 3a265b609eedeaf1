"""`roost agent`: options in, `roost.app.agents` runs."""

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from roost.app.options import AgentOptions, GPUs
from roost.base.errors import InvalidRequest
from roost.base.units import parse_bytes, parse_count, parse_cpu
from roost.cli.running.serve import LogFormat, LogFormatOption, LogLevel, LogLevelOption
from roost.cli.words.asking import read_labels
from roost.cli.words.options import reports_errors
from roost.cli.words.qemuoptions import (
    AccelOption,
    BridgeOption,
    CountFlowsOption,
    CpuModelOption,
    DefaultCmdlineOption,
    DefaultImageOption,
    DefaultInitrdOption,
    DefaultKernelOption,
    ImageCacheOption,
    ImageFromOption,
    MigrateAddressOption,
    MigrateBandwidthOption,
    MigrateLimitOption,
    MigratePortsOption,
    MigrateTlsOption,
    PciOption,
    QemuOption,
    QemuUserOption,
    QemuWords,
    SharedDisksOption,
    VmDiskBandwidthOption,
    VmDiskIopsOption,
    read_qemu,
    read_seconds,
)

T = TypeVar("T")

_DATA = Path.home() / ".local" / "share" / "roost-agent"
_HOST = "The host"
_WHERE = "Where it is"
_VIRTUAL = "The virtual driver"
MOST_HOSTS = 100_000


class Driver(StrEnum):
    """How VMs are run."""

    VIRTUAL = "virtual"
    QEMU = "qemu"


@reports_errors
def agent(
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the host.")],
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Address of a server, repeatable; else ROOST_SERVER, else the context file.",
        ),
    ] = None,
    join_token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="ROOST_JOIN_TOKEN",
            help="One-time token of `roost token join`; needed the first time only.",
        ),
    ] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of its credential and state.")
    ] = _DATA,
    driver: Annotated[Driver, typer.Option(help="How VMs are run.")] = Driver.VIRTUAL,
    zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Zone of the host.", rich_help_panel=_WHERE)
    ] = "",
    rack: Annotated[
        str, typer.Option(metavar="RACK", help="Rack of the host.", rich_help_panel=_WHERE)
    ] = "",
    site: Annotated[
        str, typer.Option(metavar="SITE", help="Site of the host.", rich_help_panel=_WHERE)
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A label of the host.", rich_help_panel=_WHERE),
    ] = None,
    cpu: Annotated[
        str | None,
        typer.Option(
            metavar="CORES",
            help="Cores (default: the machine's). Agents that share a machine divide it so.",
            rich_help_panel=_HOST,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for VMs (default: the machine's).",
            rich_help_panel=_HOST,
        ),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Disk for VMs (default: the file system's, less what others use).",
            rich_help_panel=_HOST,
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL:COUNT",
            help="GPUs of a virtual host; a real one's are read.",
            rich_help_panel=_HOST,
        ),
    ] = None,
    reserve_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory that VMs do not get (default: 0; of a real machine's 1 GiB or 5 %, the "
            "larger).",
            rich_help_panel=_HOST,
        ),
    ] = None,
    overcommit_cpu: Annotated[
        str,
        typer.Option(
            metavar="RATIO", help="Cores promised for each core there is.", rich_help_panel=_HOST
        ),
    ] = "1",
    fence_guard: Annotated[
        bool,
        typer.Option(
            "--fence-guard",
            help="Run a guard that stops VMs with restart=elsewhere when the lease ends.",
            rich_help_panel=_HOST,
        ),
    ] = False,
    watchdog: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Watchdog that resets the host if the guard cannot stop a VM (/dev/watchdog).",
            rich_help_panel=_HOST,
        ),
    ] = None,
    max_destroy: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N",
            help="VMs destroyed within ten seconds (default: a quarter of all, at least 3).",
            rich_help_panel=_HOST,
        ),
    ] = None,
    stop_grace: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS",
            help="How long a guest may take to shut down before it is cut off: at a stop, a "
            "restart and a cold move.",
            rich_help_panel=_HOST,
        ),
    ] = 30.0,
    start_alone_after: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS",
            help="How long VMs wait after a boot of the machine while no control plane answers: "
            "they may have been recovered elsewhere.",
            rich_help_panel=_HOST,
        ),
    ] = 60.0,
    probe_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT",
            help="Port at which agents that the control plane names measure the way to this host "
            "(`roost topology measure`); of several hosts each has the next, 0: any (default: "
            "none, and this host measures nothing).",
            rich_help_panel=_HOST,
        ),
    ] = None,
    probe_address: Annotated[
        str | None,
        typer.Option(
            metavar="IP",
            help="IP address of this host for --probe-port, as other hosts reach it (default: "
            "127.0.0.1).",
            rich_help_panel=_HOST,
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_HOSTS, metavar="N", help="So many virtual hosts, NAME-01 and so on.",
            rich_help_panel=_VIRTUAL,
        ),
    ] = 1,
    boot_s: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a VM takes to start (default: 1).",
            rich_help_panel=_VIRTUAL,
        ),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN[:KEY=VALUE,...]",
            help="How busy VMs without a label `load` pretend to be (default: steady).",
            rich_help_panel=_VIRTUAL,
        ),
    ] = None,
    load_trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file of time and cpu that VMs with the load `trace` play.",
            rich_help_panel=_VIRTUAL,
        ),
    ] = None,
    accel: AccelOption = None,
    qemu: QemuOption = None,
    cpu_model: CpuModelOption = None,
    pci: PciOption = None,
    bridge: BridgeOption = None,
    count_flows: CountFlowsOption = None,
    qemu_user: QemuUserOption = None,
    vm_disk_bandwidth: VmDiskBandwidthOption = None,
    vm_disk_iops: VmDiskIopsOption = None,
    shared_disks: SharedDisksOption = None,
    image_from: ImageFromOption = None,
    image_cache: ImageCacheOption = None,
    default_image: DefaultImageOption = None,
    default_kernel: DefaultKernelOption = None,
    default_initrd: DefaultInitrdOption = None,
    default_cmdline: DefaultCmdlineOption = None,
    migrate_address: MigrateAddressOption = None,
    migrate_ports: MigratePortsOption = None,
    migrate_tls: MigrateTlsOption = None,
    migrate_bandwidth: MigrateBandwidthOption = None,
    migrate_limit: MigrateLimitOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:  # fmt: skip
    """Run the agent of a host.

    It joins with a one-time token, keeps the credential it gets, and then runs what the control
    plane wants on this host.
    """
    from roost.client.context import read_context

    context = read_context(os.environ, Path.cwd())
    words = QemuWords(
        accel=accel,
        qemu=qemu,
        cpu_model=cpu_model,
        pci=pci,
        bridge=bridge,
        count_flows=count_flows,
        qemu_user=qemu_user,
        vm_disk_bandwidth=vm_disk_bandwidth,
        vm_disk_iops=vm_disk_iops,
        shared_disks=shared_disks,
        image_from=image_from,
        image_cache=image_cache,
        default_image=default_image,
        default_kernel=default_kernel,
        default_initrd=default_initrd,
        default_cmdline=default_cmdline,
        migrate_address=migrate_address,
        migrate_ports=migrate_ports,
        migrate_tls=migrate_tls,
        migrate_bandwidth=migrate_bandwidth,
        migrate_limit=migrate_limit,
    )
    if driver is Driver.QEMU and gpu:
        raise InvalidRequest("--gpu is for virtual hosts; the GPUs of a real one are read")
    if driver is not Driver.VIRTUAL and (load is not None or load_trace is not None):
        raise InvalidRequest("--load and --load-trace are options of --driver virtual")
    options = AgentOptions(
        name=name,
        servers=tuple(server or context.servers),
        join_token=join_token,
        data=data,
        driver=driver.value,
        zone=zone,
        rack=rack,
        site=site,
        labels=read_labels(label or [], "--label"),
        cpu_milli=_amount(cpu, parse_cpu, "--cpu"),
        memory_bytes=_amount(memory, parse_bytes, "--memory"),
        disk_bytes=_amount(disk, parse_bytes, "--disk"),
        gpus=tuple(read_gpus(text) for text in gpu or []),
        reserve_memory_bytes=_amount(reserve_memory, parse_bytes, "--reserve-memory"),
        overcommit_cpu_milli=read_ratio(overcommit_cpu),
        count=count,
        boot_s=_boot_s(boot_s, driver),
        load=load or "steady",
        load_trace=load_trace,
        qemu=read_qemu(words, used=driver is Driver.QEMU),
        start_alone_after_s=read_seconds(start_alone_after, "--start-alone-after"),
        stop_grace_s=read_seconds(stop_grace, "--stop-grace"),
        fence_guard=fence_guard,
        watchdog=watchdog,
        probe_port=probe_port,
        probe_address=read_probe_address(probe_address, probe_port),
        max_destroy=max_destroy,
        log_format=log_format.value,
        log_level=log_level.value,
        ca_file=context.ca_file,
        token=context.token,
    )
    from roost.app.agents import run_agents

    run_agents(options)


def read_probe_address(text: str | None, port: int | None) -> str:
    """Return the address of the probe port."""
    from roost.wire.agentlink import probe_address

    if text is None:
        return "127.0.0.1"
    if port is None:
        raise InvalidRequest("--probe-address needs --probe-port")
    if probe_address(f"[{text}]:1" if ":" in text else f"{text}:1") is None:
        raise InvalidRequest(f"--probe-address {text!r} is no address", hint="Maybe 10.0.0.5?")
    return text


def _boot_s(given: float | None, driver: Driver) -> float:
    if given is not None and driver is not Driver.VIRTUAL:
        raise InvalidRequest("--boot-s is an option of --driver virtual")
    return 1.0 if given is None else given


def _amount(text: str | None, read: Callable[[str, str], T], option: str) -> T | None:
    return None if text is None else read(text, option)


def read_gpus(text: str) -> GPUs:
    """Return the GPUs that MODEL:COUNT means."""
    model, colon, number = text.rpartition(":")
    if not colon or not model:
        raise InvalidRequest(f"--gpu {text!r} is not MODEL:COUNT", hint=f"Maybe {text}:1?")
    counted = parse_count(number, "--gpu count")
    if not 1 <= counted <= 62:
        raise InvalidRequest(f"--gpu {text!r}: a host has 1 to 62 GPUs")
    return GPUs(model=model, count=counted)


def read_ratio(text: str) -> int:
    """Return the thousandths that a ratio such as "1.5" means."""
    if text.endswith("m"):
        raise InvalidRequest(f"--overcommit-cpu {text!r} takes no unit", hint="Maybe 1.5?")
    ratio = parse_cpu(text, "--overcommit-cpu")
    if not 100 <= ratio <= 100_000:
        raise InvalidRequest(f"--overcommit-cpu {text!r} is not within 0.1 and 100")
    return ratio
