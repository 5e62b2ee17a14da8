"""Names of other people's exporters: Prometheus itself, node exporter 1.x and DCGM exporter 4.x.

DCGM exporter publishes what its counters file lists; `compose/dcgm-counters.csv` is made from this table, because the
shipped default has neither replays nor throttling. Older exporters than 4.2.3 miss fields on Blackwell.
"""

from __future__ import annotations

UP = "up"
SAMPLES = "scrape_samples_scraped"

CPU_SECONDS = "node_cpu_seconds_total"
MEMORY_AVAILABLE = "node_memory_MemAvailable_bytes"
MEMORY_TOTAL = "node_memory_MemTotal_bytes"
DISK_READ = "node_disk_read_bytes_total"
NETWORK_RECEIVED = "node_network_receive_bytes_total"
FILESYSTEM_FREE = "node_filesystem_avail_bytes"

# Field -> (Prometheus type, help).
DCGM: dict[str, tuple[str, str]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "Share of time with a kernel running, percent."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Device memory in use, MiB."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Device memory free, MiB."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw, watts."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "Temperature, degrees Celsius."),
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock, MHz."),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gauge", "Share of cycles with memory traffic."),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gauge", "Bytes sent over PCIe a second."),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gauge", "Bytes received over PCIe a second."),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", "PCIe packets sent again."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Last XID error; 0 for none."),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "Double-bit memory errors since boot."),
}

NODE_NAMES = frozenset(
    (UP, SAMPLES, CPU_SECONDS, MEMORY_AVAILABLE, MEMORY_TOTAL, DISK_READ, NETWORK_RECEIVED, FILESYSTEM_FREE)
)


def dcgm_counters() -> str:
    """The counters file of DCGM exporter."""
    rows = [f"{name}, {kind}, {text.rstrip('.')}" for name, (kind, text) in DCGM.items()]
    head = "# Rendered by `outrider observe render`; change src/outrider/observe/node_metrics.py."
    return "\n".join([head, *rows, ""])
