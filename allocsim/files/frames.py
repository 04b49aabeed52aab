"""Messages between two processes of one program: frames over a pipe.

A frame is the length of its payload, eight bytes, little-endian, then the payload, a pickle. Both
ends run the same code, so a frame is loaded without the checks that a file of the user needs.

What this module does not see: what a message means.
"""

import os
import pickle
import select
import struct
import time
from typing import Any, BinaryIO, Final

HEAD: Final = struct.Struct("<q")
"""The length of the payload, in bytes, before each payload."""


def send(stream: BinaryIO, thing: Any) -> None:
    """Write one frame and flush the stream."""
    send_payload(stream, pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL))


def send_payload(stream: BinaryIO, payload: bytes) -> None:
    """Write one frame of an object that is pickled already, and flush the stream."""
    stream.write(HEAD.pack(len(payload)) + payload)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one frame. Raises EOFError if the other process ended before it wrote a whole frame."""
    (size,) = HEAD.unpack(_exactly(stream, HEAD.size))
    return pickle.loads(_exactly(stream, size))  # noqa: S301 - written by our own process


def _exactly(stream: BinaryIO, size: int) -> bytes:
    payload = stream.read(size)
    if payload is None or len(payload) < size:
        raise EOFError
    return payload


class Frames:
    """The reading end of a pipe of frames, with a time limit; half a frame is kept."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._bytes = bytearray()

    def receive(self, deadline: float, *, other: "Frames | None" = None) -> Any:
        """Return the next frame.

        `deadline` is in seconds of `time.monotonic`. Raises TimeoutError at the deadline. Raises
        EOFError at the end of the pipe, or if `other` has news and this pipe has none.
        """
        while (frame := self._whole()) is None:
            waiting = [self.descriptor] + ([other.descriptor] if other is not None else [])
            ready = select.select(waiting, [], [], max(deadline - time.monotonic(), 0))[0]
            if not ready:
                raise TimeoutError
            if self.descriptor not in ready and not select.select([self.descriptor], [], [], 0)[0]:
                raise EOFError  # looked at again: a last frame may come after the look here and before that at `other`
            more = os.read(self.descriptor, 1 << 20)
            if not more:
                raise EOFError
            self._bytes += more
        return frame

    def forget(self) -> None:
        """Drop half a frame whose writer is gone."""
        while select.select([self.descriptor], [], [], 0)[0]:
            if not os.read(self.descriptor, 1 << 20):
                break
        self._bytes.clear()

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _whole(self) -> Any:
        if len(self._bytes) < HEAD.size:
            return None
        end = HEAD.size + HEAD.unpack_from(self._bytes)[0]
        if len(self._bytes) < end:
            return None
        frame = pickle.loads(bytes(self._bytes[HEAD.size : end]))  # noqa: S301 - written by our own process
        del self._bytes[:end]
        return frame


__all__ = ["Frames", "receive", "send", "send_payload"]
