"""A disk of a fresh Debian 12, made once a test run: mmdebstrap's tree, packed by `mke2fs -d`, no loop devices."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.provision.rig import interpreter

# What a Debian cloud image has, and what a node's operator would find there; nothing of NVIDIA, no Docker, no headers.
_PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,openssh-server,sudo,python3,python3-apt,iproute2,ca-certificates,pciutils,procps,"
    "kmod,gnupg,unattended-upgrades,linux-image-cloud-amd64,grub2-common,grub-pc-bin"
)
_NETWORK = "[Match]\nName=en*\n[Network]\nDHCP=yes\n"  # `en*` only, or networkd grabs Docker's interfaces
_OPTIONS = "console=ttyS0 mitigations=off no_timer_check"  # a busy machine emulates too slowly for that check
_GRUB = (
    f'GRUB_TIMEOUT=0\nGRUB_DISTRIBUTOR=Debian\nGRUB_CMDLINE_LINUX="{_OPTIONS}"\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    "GRUB_DISABLE_LINUX_UUID=true\n"  # the root by its device's name, which the kernel knows without udev's help
)
_ROOT_LABEL = "node-root"
_ROOT = "/dev/vda"
# Without these the initial RAM disk is made in half the time (38 instead of 77 s of processor time, emulated) and is
# smaller (3.9 instead of 6.3 MB, which BIOS reads a sector at a time). What udev did at its end is done by `_MOVE_DEV`.
_NEEDLESS_HOOKS = "hooks/{dmsetup,fsck,keymap,resume,thermal,udev} scripts/init-{top,bottom}/* scripts/local-premount/*"
_MOVE_DEV = '#!/bin/sh\n[ "$1" = prereqs ] && exit 0\nmount -n -o move /dev "$rootmnt/dev"\n'
# Kernel modules of devices and protocols that this machine has not: `depmod` reads every module, and is emulated.
_NEEDLESS_MODULES = (
    "drivers/{hid,comedi,md,scsi,thermal,leds,firmware,watchdog,infiniband,uio,nvme,xen,target,media,usb,gpu,hv,mmc,mtd}",
    "fs/{nls,nfs,nfsd,nfs_common,cifs,smb,ceph,btrfs,xfs,f2fs,gfs2,ocfs2,dlm,lockd,ntfs3,udf,9p,afs,squashfs,isofs}",
    "net/{sched,bridge,vmw_vsock,sctp,tipc,rds,ceph,sunrpc,openvswitch,dccp,l2tp,9p,wireless,mac80211,bluetooth,can}",
    "sound",
)
# What runs at boot and has nothing to do on a node that lives for minutes.
_NEEDLESS_UNITS = (
    "apt-daily.timer apt-daily-upgrade.timer man-db.timer e2scrub_reap.service e2scrub_all.timer fstrim.timer "
    "getty@tty1.service modprobe@dm_mod.service modprobe@loop.service modprobe@fuse.service modprobe@efi_pstore.service"
)


@dataclass(frozen=True)
class Image:
    """Files of a bootable node.

    Attributes:
        disk: qcow2 with the root file system; machines boot overlays of it.
        boot_loader: an ISO with GRUB, which reads the disk's own `/boot/grub/grub.cfg`.
        kernel: release of the kernel, as `uname -r` says it.
    """

    disk: Path
    boot_loader: Path
    kernel: str


def build(directory: Path, public_key: str) -> Image:
    """Make the disk and its boot loader (about a minute; needs root and Debian's package mirror)."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_roomy(), prefix="node-image.") as scratch:
        tree = Path(scratch) / "tree"
        _install(Path(scratch), tree, public_key)
        kernel = next((tree / "lib/modules").iterdir()).name
        disk = _pack(tree, directory)
    return Image(disk, _boot_loader(directory), kernel)


def _roomy() -> str | None:
    """Memory if there is plenty: unpacking hundreds of packages is bound by small writes."""
    shm = Path("/dev/shm")
    return str(shm) if shm.is_dir() and shutil.disk_usage(shm).free > 4 << 30 else None


def _install(scratch: Path, tree: Path, public_key: str) -> None:
    files = {
        "root/.ssh/authorized_keys": public_key,
        "etc/systemd/network/10-node.network": _NETWORK,
        "etc/hostname": "node1\n",
        "etc/hosts": "127.0.0.1 localhost node1\n",
        "etc/resolv.conf": "nameserver 10.0.2.3\n",
        "etc/default/grub": _GRUB,
        "etc/fstab": f"{_ROOT} / ext4 defaults,noatime 0 0\n",
        "etc/initramfs-tools/scripts/init-bottom/dev": _MOVE_DEV,
        # Tests say when apt runs by itself; its timers would hold its lock at any time.
        "etc/systemd/system-preset/00-node.preset": "disable apt-daily.timer\ndisable apt-daily-upgrade.timer\n",
    }
    overlay = scratch / "overlay"
    for name, text in files.items():
        (overlay / name).parent.mkdir(parents=True, exist_ok=True)
        (overlay / name).write_text(text)
    (overlay / "root/.ssh").chmod(0o700)
    (overlay / "etc/initramfs-tools/scripts/init-bottom/dev").chmod(0o755)
    interpreter.lay(overlay)
    certificates = overlay / "usr/local/share/ca-certificates"
    certificates.mkdir(parents=True)
    for one in Path("/usr/local/share/ca-certificates").glob("*.crt"):  # trust what this machine trusts
        shutil.copy(one, certificates)
    configure = scratch / "configure.sh"
    configure.write_text(
        "set -e\n"
        f'cp -a --no-preserve=ownership {overlay}/. "$1"\n'
        'chroot "$1" update-ca-certificates >/dev/null\n'
        f'chroot "$1" systemctl enable --quiet systemd-networkd ssh {interpreter.UNIT}\n'
        f'chroot "$1" systemctl mask --quiet {_NEEDLESS_UNITS}\n'
        'chroot "$1" usermod --shell /bin/sh root\n'
        f'chroot "$1" python3 -m compileall -q /{interpreter.LIBRARY}\n'
        # What has nothing to say here; each asks an emulated grub-probe for every device.
        '(cd "$1/etc/grub.d" && chmod -x 05_debian_theme 20_linux_xen 30_os-prober 30_uefi-firmware 4*_custom)\n'
        'k=$(ls "$1/lib/modules")\n'
        f'bash -c "cd $1/lib/modules/$k/kernel && rm -rf {" ".join(_NEEDLESS_MODULES)}"\n'
        'chroot "$1" depmod "$k"\n'
        f'bash -c "cd $1/usr/share/initramfs-tools && rm -f {_NEEDLESS_HOOKS}"\n'
        'chroot "$1" update-initramfs -u -k "$k" >/dev/null\n'
        # grub-mkconfig asks the running machine for its root device; the node's own says the same at its first boot.
        'mkdir -p "$1/boot/grub"\n'
        f'printf "set timeout=0\\nlinux /boot/vmlinuz-%s root={_ROOT} ro {_OPTIONS} quiet\\n'
        'initrd /boot/initrd.img-%s\\nboot\\n" "$k" "$k" > "$1/boot/grub/grub.cfg"\n'
    )
    _run(
        "mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", f"--include={_PACKAGES}",
        # A small initial RAM disk, since BIOS reads it a sector at a time, that is made anew without much thought.
        '--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d"; '
        "printf 'MODULES=list\\nCOMPRESS=gzip\\nCOMPRESSLEVEL=1\\nRESUME=none\\n'"
        ' > "$1/etc/initramfs-tools/conf.d/node"; '
        "printf 'virtio_pci\\nvirtio_blk\\next4\\n' > \"$1/etc/initramfs-tools/modules\"",
        f'--customize-hook=sh {configure} "$1"',
        "bookworm", str(tree.with_suffix(".tar")), env_tmp=scratch,
    )  # fmt: skip
    tree.mkdir()
    _run("tar", "--directory", str(tree), "--extract", "--file", str(tree.with_suffix(".tar")))
    tree.with_suffix(".tar").unlink()


def _pack(tree: Path, directory: Path) -> Path:
    raw, disk = directory / "root.raw", directory / "root.qcow2"
    with raw.open("wb") as file:
        file.truncate(6 << 30)
    features = "^metadata_csum_seed,^orphan_file"  # GRUB reads neither
    _run("mke2fs", "-q", "-t", "ext4", "-O", features, "-L", _ROOT_LABEL, "-d", str(tree), str(raw))
    _run("qemu-img", "convert", "-O", "qcow2", str(raw), str(disk))
    raw.unlink()
    return disk


def _boot_loader(directory: Path) -> Path:
    """GRUB on a CD: the kernel's command line is then what `update-grub` wrote, as on a real node."""
    tree, iso = directory / "grub-cd", directory / "grub.iso"
    (tree / "boot/grub").mkdir(parents=True, exist_ok=True)
    (tree / "boot/grub/grub.cfg").write_text(
        # Modules come from the CD, where `prefix` points; everything else from the disk.
        f"insmod ext2\nsearch --no-floppy --label {_ROOT_LABEL} --set=root\nconfigfile ($root)/boot/grub/grub.cfg\n"
    )
    _run("grub-mkrescue", "-d", "/usr/lib/grub/i386-pc", "--compress=xz", "-o", str(iso), str(tree))
    return iso


def _run(*argv: str, env_tmp: Path | None = None) -> None:
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    if env_tmp is not None:
        env["TMPDIR"] = str(env_tmp)
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}:\n{done.stderr[-3000:]}")
