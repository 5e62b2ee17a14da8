"""One container for all tests of the roles; `OUTRIDER_TEST_NODE_BASE` names a Debian 12 image with systemd and SSH."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from tests.provision.roles import node as nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

TAG = "outrider-test/node"
PROGRAM = "/opt/outrider/venv/bin/outrider"
OUTRIDER = """\
#!/usr/bin/python3
import sys
sys.path[:0] = ["/srv/outrider/src", "/srv/packages"]
from outrider.cli import main
main()
"""


@pytest.fixture(scope="session")
def vendors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nodes.Vendors]:
    release = subprocess.run(["uname", "-r"], check=True, capture_output=True, text=True).stdout.strip()
    made = nodes.Vendors(tmp_path_factory.mktemp("vendors"), release)
    yield made
    made.close()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> nodes.Path:
    """The node's image, built; gives the directory with its SSH key."""
    base = os.environ.get("OUTRIDER_TEST_NODE_BASE")
    assert base, "OUTRIDER_TEST_NODE_BASE names no image; .ci/provision makes one"
    directory = tmp_path_factory.mktemp("node")
    nodes.build(base, directory, TAG)
    return directory


@pytest.fixture(scope="module")
def node(image: nodes.Path, vendors: nodes.Vendors) -> Iterator[nodes.Node]:
    """A bare node that has booted; `outrider` runs there from this checkout and this environment's packages."""
    with _booted(image, vendors) as running:
        yield running


@pytest.fixture
def neighbour(image: nodes.Path, vendors: nodes.Vendors) -> Iterator[nodes.Node]:
    """A second one."""
    with _booted(image, vendors) as running:
        yield running


@contextlib.contextmanager
def _booted(image: nodes.Path, vendors: nodes.Vendors) -> Iterator[nodes.Node]:
    mounts = {
        vendors.driver.directory.parent: "/srv/vendors",
        nodes.ROOT / "src": "/srv/outrider/src",
        nodes.ROOT / "stacks": "/srv/outrider/stacks",
        nodes.Path(pydantic.__file__).parents[1]: "/srv/packages",
    }
    running = nodes.start(TAG, image, mounts)
    try:
        running.run(f"mkdir -p /opt/outrider/venv/bin && cat >{PROGRAM} <<'EOF'\n{OUTRIDER}EOF\nchmod 755 {PROGRAM}")
        yield running
    finally:
        nodes.remove(running)


def variables_of(node: nodes.Node) -> dict[str, Any]:
    """An inventory's variables: what differs from the defaults on this node."""
    return {
        "outrider_run_dir": str(node.directory / "run"),
        "preflight_sysfs": "/srv/sysfs",
        "preflight_kernel_headers": False,
        "host_tuning_bootloader": "external",
        "host_tuning_sysfs": "/srv/sysfs",
        # The kernel is shared with the machine that runs the tests, and /proc/sys cannot be written here.
        "host_tuning_sysctl": {},
        "nvidia_driver_repository_uri": "file:/srv/vendors/driver",
        "nvidia_driver_repository_suite": "./",
        "nvidia_driver_repository_key": "file:///srv/vendors/driver/archive-keyring.gpg",
        "nvidia_driver_kernel_headers": False,
        "nvidia_driver_load": False,
        "container_runtime_docker_repository_uri": "file:/srv/vendors/containers",
        "container_runtime_docker_repository_suite": "./",
        "container_runtime_docker_repository_components": [],
        "container_runtime_docker_repository_key": "file:///srv/vendors/containers/archive-keyring.gpg",
        "container_runtime_docker_packages": ["docker-ce"],
        "container_runtime_toolkit_repository_uri": "",  # the same repository
        "nccl_tests_source": "package",
        "monitoring_gpu_exporter": False,
        "model_store_reserve_gb": 0,
        "model_store_models": [{"name": "org/model", "source": "directory", "from": "/srv/outrider/stacks"}],
        "outrider_service_install_from": "existing",
        "outrider_service_stacks": [{"stack": "smollm2-cpu", "variants": ["baseline", "ngram"]}],
        "node_report_all_reduce_timeout_s": 10,
        "node_report_all_reduce_max_bytes": 65536,
    }


@pytest.fixture(scope="module")
def variables(node: nodes.Node) -> dict[str, Any]:
    return variables_of(node)
