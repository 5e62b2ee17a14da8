"""The dashboard of the machine: memory, GPUs, PCIe."""

from __future__ import annotations

from outrider.observe import node_metrics as n
from outrider.observe import series as s
from outrider.observe.panels import SWITCHES, VARIABLES, Dashboard, Panel, Query, Row, chosen

_GPU = "GPU {{gpu}}"
_NO_GPU = "no GPU exporter (make dashboards starts it where a GPU is)"
_DISKS = '{device!~"(loop|ram|dm-).*"}'
_LINKS = '{device!~"lo|veth.*|docker.*|br-.*"}'


def node() -> Dashboard:
    """Is the machine the reason?"""
    return Dashboard(
        uid="outrider-node",
        title="Outrider: node",
        description="Is the machine the reason? KV cache, host, GPUs and their links.",
        variables=VARIABLES,
        marks=(SWITCHES,),
        rows=(
            Row(
                "KV cache",
                (
                    Panel(
                        "KV cache in use",
                        "Share of the blocks that hold tokens of running requests. Full means that requests wait.",
                        (Query(chosen(s.KV_USAGE)),),
                        unit="percentunit", low=0, high=1, limits=(0.8, 0.95), high_is_bad=True, empty="no engine",
                    ),
                    Panel(
                        "Preemptions per second",
                        "Running requests that were thrown out for want of room, and will be computed again.",
                        (Query(chosen(s.rate_of("preemptions"))),),
                        low=0, empty="no engine", decimals=2,
                    ),
                    Panel(
                        "Prefix cache hits",
                        "Share of prompt tokens that need no computing, because an earlier request had them.",
                        (Query(chosen(s.PREFIX_HITS)),),
                        unit="percentunit", low=0, high=1,
                    ),
                ),
            ),
            Row(
                "Host",
                (
                    Panel(
                        "CPU in use",
                        "Share of all cores that is not idle.",
                        (Query(f'1 - avg by (instance) (rate({n.CPU_SECONDS}{{mode="idle"}}[1m]))', "{{instance}}"),),
                        unit="percentunit", low=0, high=1, width=6, empty="no node exporter",
                    ),
                    Panel(
                        "Memory in use",
                        "Share of host memory that is not available to new programs.",
                        (Query(f"1 - {n.MEMORY_AVAILABLE} / ({n.MEMORY_TOTAL} > 0)", "{{instance}}"),),
                        unit="percentunit", low=0, high=1, width=6, limits=(0.8, 0.95), high_is_bad=True,
                        empty="no node exporter",
                    ),
                    Panel(
                        "Disk reads",
                        "What a loading model waits for.",
                        (Query(f"sum by (instance, device) (rate({n.DISK_READ}{_DISKS}[1m]))", "{{device}}"),),
                        unit="binBps", low=0, width=6, empty="no node exporter",
                    ),
                    Panel(
                        "Network received",
                        "Matters with several nodes.",
                        (Query(f"sum by (instance, device) (rate({n.NETWORK_RECEIVED}{_LINKS}[1m]))", "{{device}}"),),
                        unit="binBps", low=0, width=6, empty="no node exporter",
                    ),
                ),
            ),
            Row(
                "GPUs",
                (
                    _gpu("Busy", "Share of time in which a kernel ran, in percent.", "DCGM_FI_DEV_GPU_UTIL", "percent"),
                    _gpu("Device memory in use", "Weights, KV cache, graphs.", "DCGM_FI_DEV_FB_USED", "mbytes"),
                    _gpu("Device memory free", "What a second engine would find.", "DCGM_FI_DEV_FB_FREE", "mbytes"),
                    _gpu("Memory traffic", "Share of cycles; plain decoding lives on this.",
                         "DCGM_FI_PROF_DRAM_ACTIVE", "percentunit"),
                    _gpu("Power", "A limit that is always met throttles the clock.", "DCGM_FI_DEV_POWER_USAGE", "watt"),
                    _gpu("Temperature", "Above its limit the clock falls.", "DCGM_FI_DEV_GPU_TEMP", "celsius"),
                    _gpu("SM clock", "What power and heat leave of it, in MHz.", "DCGM_FI_DEV_SM_CLOCK", "rotmhz"),
                    _gpu("Errors", "Code of the last XID error; 0 is none.", "DCGM_FI_DEV_XID_ERRORS", "short"),
                    _gpu("Double-bit memory errors", "Counted since boot; each one is data that was lost.",
                         "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "short"),
                ),
            ),
            Row(
                "PCIe",
                (
                    _gpu("Sent", "All-reduces between GPUs without NVLink go this way.",
                         "DCGM_FI_PROF_PCIE_TX_BYTES", "binBps"),
                    _gpu("Received", "The other direction of the same link.", "DCGM_FI_PROF_PCIE_RX_BYTES", "binBps"),
                    Panel(
                        "Replays per second",
                        "Packets that had to be sent again: a bad riser, slot or cable.",
                        (Query("rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1m])", _GPU),),
                        low=0, needs_gpu=True, empty=_NO_GPU, decimals=2,
                    ),
                ),
            ),
        ),
    )  # fmt: skip


def _gpu(title: str, description: str, metric: str, unit: str) -> Panel:
    return Panel(title, description, (Query(metric, _GPU),), unit=unit, needs_gpu=True, empty=_NO_GPU)
