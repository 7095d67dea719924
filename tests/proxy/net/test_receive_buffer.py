"""The kernel's receive buffer of a throttled connection."""

import socket
from collections.abc import Iterator

import pytest

from proxy.net.sockets import SMALL_RECEIVE_BYTES, SO_BUF_LOCK, restore_receive_buffer, shrink_receive_buffer

RECEIVE_LOCK = 2


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            yield accepted


def test_a_small_buffer_is_small(receiver: socket.socket) -> None:
    """A shrunk receive buffer has at most twice the requested size, as Linux counts it."""
    shrink_receive_buffer(receiver.fileno())
    assert receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * SMALL_RECEIVE_BYTES


def test_after_the_throttle_the_window_may_grow_again(receiver: socket.socket) -> None:
    """After the throttle the receive buffer, the window and the kernel's autotuning are restored."""
    shrink_receive_buffer(receiver.fileno())
    restore_receive_buffer(receiver.fileno())
    assert receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > 2 * SMALL_RECEIVE_BYTES
    assert receiver.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP) > SMALL_RECEIVE_BYTES
    try:
        locks = receiver.getsockopt(socket.SOL_SOCKET, SO_BUF_LOCK)
    except OSError:
        pytest.skip("this kernel does not give the sizing back (Linux 5.15 does)")
    assert not locks & RECEIVE_LOCK


def test_a_descriptor_that_is_gone_is_let_be() -> None:
    """Shrinking and restoring the buffer of a closed descriptor does nothing."""
    shrink_receive_buffer(-1)
    restore_receive_buffer(-1)
