"""Ports: reading the kernel's tables, and refusing what is taken."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import RuntimeStateError
from outrider.runtime import ports
from outrider.runtime.ports import Listener

if TYPE_CHECKING:
    import ipaddress

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def as_the_kernel_writes(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, state: str) -> str:
    words = struct.unpack(f"={len(address.packed) // 4}I", address.packed)
    local = "".join(f"{word:08X}" for word in words)
    return (
        f"   0: {local}:{port:04X} {'0' * len(local)}:0000 {state} 00000000:00000000 00:00000000 00000000"
        "  1000        0 4711 1 0000000000000000 100 0 0 10 0\n"
    )


@given(st.ip_addresses(), st.integers(1, 65535))
def test_any_listening_address_is_read_back(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    text = HEADER + as_the_kernel_writes(address, port, "01") + as_the_kernel_writes(address, port, "0A")
    assert ports.parse_listeners(text) == [Listener(str(address), port, 1000, 4711)]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_real_listener_is_found_with_its_holder(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        (found,) = ports.listeners(port)
        assert (found.address, found.uid) == (address, os.getuid())
        assert ports.holders([found]) == {found.inode: os.getpid()}
        user = pwd.getpwuid(os.getuid()).pw_name
        host = "127.0.0.1" if family == socket.AF_INET else "::1"
        assert f"pid {os.getpid()} of user {user}: " in ports.describe_owners(port, host)


@pytest.mark.parametrize(
    ("theirs", "ours", "meet"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("192.0.2.7", "127.0.0.1", False),
        ("::", "127.0.0.1", True),
        ("::1", "127.0.0.1", False),
        ("127.0.0.1", "::", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
    ],
)
def test_addresses_meet_as_the_kernel_has_it(theirs: str, ours: str, meet: bool) -> None:
    assert ports.conflicts(Listener(theirs, 80, 0, 1), ours) is meet


def test_a_taken_port_is_not_free_and_the_next_free_one_is_offered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
        assert ports.free_port(port) != port
        with pytest.raises(RuntimeStateError, match=f"port {port} on 127.0.0.1 is taken"):
            ports.require_free(port, "127.0.0.1")
    assert ports.free_port(port) == port


def test_a_shared_port_counts_as_taken() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        assert not ports.is_free(server.getsockname()[1])


def test_a_bound_port_that_nobody_listens_on_is_refused_too() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(RuntimeStateError):
            ports.require_free(bound.getsockname()[1], "127.0.0.1")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(RuntimeStateError, match="cannot be listened on"):
        ports.require_free(ports.free_port(), "192.0.2.77")


def test_a_host_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RuntimeStateError, match="not an address of this machine"):
        ports.require_free(ports.free_port(), "no.such.host.invalid")


def test_another_user_s_listener_is_named_by_user_id() -> None:
    assert "user ID 4242" in ports._name_owner(Listener("127.0.0.1", 80, 4242, 1), None)
