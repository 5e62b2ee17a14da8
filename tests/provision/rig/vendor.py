"""The vendor's packages as stand-ins: the same names and relations, in Debian's and in Ubuntu's flavour.

What they hold instead of a driver: a module that loads and says its version, and programs that answer for a made-up
node. Debian's names never had a branch; Ubuntu's lose it from 590 on, and the new ones replace the old ones.
"""

from __future__ import annotations

from pathlib import Path

from tests.provision.rig.apt_repository import AptRepository, Package
from tests.provision.rig.kernel_module import stamped

_STAND_INS = Path(__file__).parent / "stand_ins"
ORIGIN = "NVIDIA"
FIRST, SECOND, NEXT_BRANCH = "580.95.05", "580.105.08", "590.44.01"
TOOLKIT, TOOLKIT_NEXT = "1.18.0-1", "1.18.1-1"
NCCL = "2.28.3-1+cuda13.0"
_PERSISTENCED = """[Unit]
Description=stand-in persistence daemon
[Service]
ExecStart=/usr/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""


def publish_driver(
    repository: AptRepository, modules: Path, kernel: str, flavour: str, versions: tuple[str, ...]
) -> None:
    """Add a driver's versions in a flavour (`debian`, `ubuntu`), their pinning packages, NCCL and its tests."""
    make = debian_driver if flavour == "debian" else ubuntu_driver
    for version in versions:
        repository.add(*make(version, modules, kernel))
    for branch in sorted({version.split(".")[0] for version in versions}):
        repository.add(_pinning(branch))
    repository.add(*_nccl())
    repository.publish()


def debian_driver(version: str, modules: Path, kernel: str) -> list[Package]:
    """The driver as the vendor packs it for Debian 12."""
    full = f"{version}-1"
    same = f"(= {full})"
    module = f"nvidia-kernel-open-dkms {same} | nvidia-kernel-dkms {same}"
    return [
        Package("nvidia-open", full, {"Depends": f"nvidia-driver {same}, nvidia-kernel-open-dkms {same}"}),
        Package("nvidia-driver", full, {"Depends": f"nvidia-driver-cuda {same}"}),
        Package("nvidia-driver-cuda", full, {
            "Depends": f"libcuda1 {same}, libnvidia-ml1 {same}, nvidia-persistenced {same}, {module}",
        }, **_programs(version)),
        Package("libcuda1", full, files={f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}": version}),
        Package("libnvidia-ml1", full, files={f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}": version}),
        _persistenced("nvidia-persistenced", full),
        Package("nvidia-modprobe", full, files={"/usr/share/doc/nvidia-modprobe/stand-in": version}),
        Package("nvidia-kernel-open-dkms", full, {
            "Conflicts": "nvidia-kernel-dkms", "Provides": f"nvidia-kernel {same}",
        }, **_dkms(version, modules, kernel)),
    ]  # fmt: skip


def ubuntu_driver(version: str, modules: Path, kernel: str) -> list[Package]:
    """The driver as the vendor packs it for Ubuntu 24.04."""
    full = f"{version}-1ubuntu1"
    same = f"(= {full})"
    branch = version.split(".", maxsplit=1)[0]
    old = int(branch) < 590

    def named(stem: str, tail: str = "") -> str:
        return f"{stem}-{branch}{tail}" if old else f"{stem}{tail}"

    def replacing(stem: str, tail: str = "") -> dict[str, str]:
        return {} if old else {"Replaces": f"{stem}-580{tail}", "Conflicts": f"{stem}-580{tail}"}

    driver, dkms = named("nvidia-driver", "-open"), named("nvidia-dkms", "-open")
    compute, utils = named("libnvidia-compute"), named("nvidia-utils")
    common = named("nvidia-kernel-common")
    daemon = named("nvidia-compute-utils")
    packages = [
        Package("nvidia-open", full, {"Depends": f"{driver} {same}"}),
        Package(driver, full, {
            "Depends": f"{dkms} {same}, {compute} {same}, {utils} {same}, {common} {same}, {daemon} {same}",
            **replacing("nvidia-driver", "-open"),
        }),
        Package(dkms, full, {"Depends": f"{common} {same}", "Provides": f"nvidia-kernel {same}",
                             **replacing("nvidia-dkms", "-open")}, **_dkms(version, modules, kernel)),
        Package(compute, full, replacing("libnvidia-compute"),
                {f"/usr/lib/x86_64-linux-gnu/{name}.so.{version}": version for name in ("libcuda", "libnvidia-ml")}),
        Package(utils, full, {"Depends": f"{compute} {same}", **replacing("nvidia-utils")}, **_programs(version)),
        Package(common, full, replacing("nvidia-kernel-common")),
        _persistenced(daemon, full, replacing("nvidia-compute-utils")),
    ]  # fmt: skip
    if old:
        packages.append(Package(f"nvidia-open-{branch}", full, {"Depends": f"{driver} {same}"}))
    return packages


def proprietary_driver(version: str, modules: Path, kernel: str) -> list[Package]:
    """What a node may have from before: the closed modules, under Debian's names."""
    full = f"{version}-1"
    return [
        Package("nvidia-kernel-dkms", full, {
            "Conflicts": "nvidia-kernel-open-dkms", "Provides": f"nvidia-kernel (= {full})",
        }, **_dkms(version, modules, kernel)),
        Package("cuda-drivers", full, {"Depends": f"nvidia-kernel-dkms (= {full})"}),
    ]  # fmt: skip


def toolkit(version: str) -> list[Package]:
    """The container toolkit, which since 1.18 keeps the CDI specification by a unit."""
    same = f"(= {version})"
    program = _text("nvidia-ctk", version.split("-", maxsplit=1)[0])
    refresh = (
        "[Unit]\nDescription=Refresh NVIDIA CDI specification file\n"
        "[Service]\nType=oneshot\nExecCondition=/usr/bin/test -e /sys/module/nvidia/version\n"
        "ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    return [
        Package("nvidia-container-toolkit", version, {
            "Depends": f"nvidia-container-toolkit-base {same}, libnvidia-container-tools {same}",
        }),
        Package("nvidia-container-toolkit-base", version, {}, {
            "/usr/bin/nvidia-ctk": program,
            "/usr/lib/systemd/system/nvidia-cdi-refresh.service": refresh,
        }, executable=("/usr/bin/nvidia-ctk",), scripts={
            "postinst": "if [ -d /run/systemd/system ]; then systemctl enable --quiet nvidia-cdi-refresh; fi\n",
        }),
        Package("libnvidia-container-tools", version, {"Depends": f"libnvidia-container1 {same}"}),
        Package("libnvidia-container1", version),
    ]  # fmt: skip


def docker(version: str) -> list[Package]:
    """Docker's packages; the engine is a unit that waits."""
    unit = "[Unit]\nDescription=stand-in engine\n[Service]\nExecStart=/usr/bin/sleep infinity\n"
    install = "[Install]\nWantedBy=multi-user.target\n"
    return [
        Package("docker-ce", version, {"Depends": "docker-ce-cli, containerd.io"},
                {"/usr/lib/systemd/system/docker.service": unit + install}),
        Package("docker-ce-cli", version, {}, {"/usr/bin/docker": _text("docker", version.split("-", maxsplit=1)[0])},
                executable=("/usr/bin/docker",)),
        *(Package(name, version) for name in ("containerd.io", "docker-buildx-plugin", "docker-compose-plugin")),
    ]  # fmt: skip


def exporter(version: str) -> list[Package]:
    """The GPU exporter and what it stands on."""
    unit = (
        "[Unit]\nDescription=stand-in exporter\n[Service]\nExecStart=/usr/bin/sleep infinity\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    return [
        Package("datacenter-gpu-manager-4-cuda13", version),
        Package("datacenter-gpu-manager-exporter", version, {"Depends": "datacenter-gpu-manager-4-cuda13"},
                {"/usr/lib/systemd/system/nvidia-dcgm-exporter.service": unit}),
    ]  # fmt: skip


def system(kernel: str) -> list[Package]:
    """What the roles want of the distribution; real headers pull a compiler, which takes minutes when emulated."""
    headers = f"linux-headers-{kernel}"
    unit = (
        "[Unit]\nDescription=stand-in exporter\n[Service]\nExecStart=/usr/bin/sleep infinity\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    return [
        Package(headers, "99-1", files={f"/lib/modules/{kernel}/build/Makefile": "# stand-in\n"}),
        Package("linux-headers-cloud-amd64", "99-1", {"Depends": headers}),
        Package("prometheus-node-exporter", "1.9.0-1", {},
                {"/usr/lib/systemd/system/prometheus-node-exporter.service": unit}),
    ]  # fmt: skip


def _programs(version: str) -> dict[str, object]:
    return {
        "files": {"/usr/bin/nvidia-smi": _text("nvidia-smi", version)},
        "executable": ("/usr/bin/nvidia-smi",),
    }


def _persistenced(name: str, full: str, relations: dict[str, str] | None = None) -> Package:
    return Package(
        name,
        full,
        relations or {},
        {"/usr/lib/systemd/system/nvidia-persistenced.service": _PERSISTENCED},
        scripts={"postinst": "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n"},
    )


def _dkms(version: str, modules: Path, kernel: str) -> dict[str, object]:
    """The module's package: its scripts put the module where DKMS does, or fail as a failed build does."""
    source = f"/usr/src/nvidia-{version}"
    place = f"/lib/modules/{kernel}/updates/dkms"
    install = (
        f"if [ -e /etc/stand-in/build-fails-{version} ]; then\n"
        f'  echo "Error! Bad return status for module build on kernel: {kernel} (x86_64)" >&2\n'
        f'  echo "Consult /var/lib/dkms/nvidia/{version}/build/make.log for more information." >&2\n'
        "  exit 10\nfi\n"
        f"if [ -d /lib/modules/{kernel} ]; then\n"
        f"  mkdir -p {place}\n  cp {source}/*.ko {place}/\n  depmod -a {kernel}\nfi\n"
    )
    remove = (
        f'if [ "$1" = remove ]; then\n'
        f"  rm -f {place}/nvidia*.ko\n"
        f"  if [ -d /lib/modules/{kernel} ]; then depmod -a {kernel}; fi\nfi\n"
    )
    files: dict[str, str | bytes] = {
        f"{source}/{name}": stamped(modules / name, version) for name in ("nvidia.ko", "nvidia-uvm.ko")
    }
    files[f"{source}/dkms.conf"] = f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n'
    return {"files": files, "scripts": {"postinst": install, "prerm": remove}}


def _pinning(branch: str) -> Package:
    preferences = f"Package: *nvidia* libcuda1 libxnvctrl*\nPin: version {branch}.*\nPin-Priority: 1000\n"
    return Package(
        f"nvidia-driver-pinning-{branch}",
        f"{branch}-1",
        {"Conflicts": "nvidia-driver-pinning", "Provides": "nvidia-driver-pinning"},
        {"/etc/apt/preferences.d/nvidia-driver-pinning": preferences},
        architecture="all",
    )


def _nccl() -> list[Package]:
    program = "/opt/nccl-tests/build/all_reduce_perf"
    return [
        Package("libnccl2", NCCL, files={"/usr/lib/x86_64-linux-gnu/libnccl.so.2": NCCL}),
        Package("libnccl-dev", NCCL, {"Depends": f"libnccl2 (= {NCCL})"}),
        Package("nccl-tests", "2.17.6-1", {"Depends": "libnccl2"}, {program: _text("all_reduce_perf", "")},
                executable=(program,)),
    ]  # fmt: skip


def _text(name: str, version: str) -> str:
    return (_STAND_INS / name).read_text().replace("@VERSION@", version)
