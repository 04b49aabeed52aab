"""Streams and events while PyTorch runs: on which stream an operator runs, and what torch tells of
waits. The only place here that reads `torch.cuda`.

`CudaStreams` says where the current stream of a device is. `Listening` hears what torch says of
events and synchronisations (`torch.cuda._gpu_trace`, the same words that torch's own sanitizer
reads, torch/cuda/_sanitizer.py) and passes it on to a ledger's order:

| torch says | what becomes of it |
|---|---|
| an event was recorded on a stream | a mark on what the stream was given so far |
| a stream waits for an event | its next op comes after the mark; `wait_stream` is both |
| an event, a stream or the device was synchronised | the host knows it to be done |
| an event was made or deleted | its number says nothing any more |

A stream has the number of its `cudaStream_t`; number 0, the default stream, is one for each device.
An event that was recorded before the recording began orders nothing that was recorded.

What this module does not see: polls (`Event.query`), which synchronise nothing; that the legacy
default stream waits for streams which are not `cudaStreamNonBlocking` (those of torch are);
collectives that wait by other means; captured graphs. A synchronised device is taken as all of
them.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from allocsim.errors import AllocsimError
from allocsim.programs.host_order import HostOrder
from allocsim.systems.torch.ledger import HOST

if TYPE_CHECKING:
    import torch


class DeviceStreams(Protocol):
    """What a recording asks of devices that have streams."""

    def current(self, device: "torch.device") -> Hashable:
        """Return the stream on which operators on a device run by now; `HOST` where it has none."""

    def named(self, stream: "torch.Stream") -> Hashable:
        """Return the name of a stream that the program names."""

    def numbered(self, number: int) -> Hashable:
        """Return the name of a stream that torch tells by its number."""

    def gave_back(self, device: "torch.device") -> bool:
        """Return whether the allocator gave memory back to a device since it was last asked."""


class CudaStreams:
    """The streams of `torch.cuda`."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - optional

        devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
        self._given_back = {device: self._count(device) for device in devices}

    def current(self, device: "torch.device") -> Hashable:
        """Return the number of the current stream, `HOST` for what is no CUDA device."""
        import torch  # noqa: PLC0415 - optional

        if device.type != "cuda":
            return HOST
        return _name(torch.cuda.current_stream(device).cuda_stream, device.index)

    def named(self, stream: "torch.Stream") -> Hashable:
        """Return the number of a stream."""
        import torch  # noqa: PLC0415 - optional

        same = torch.cuda.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        )
        return _name(same.cuda_stream, stream.device_index)

    def numbered(self, number: int) -> Hashable:
        """Return what a number names while torch tells of it: the device is the current one."""
        import torch  # noqa: PLC0415 - optional

        return number or _name(0, torch.cuda.current_device())

    def gave_back(self, device: "torch.device") -> bool:
        """Return whether memory went back by `cudaFree`, which waits for the whole device; what is
        no CUDA device has no such call.
        """
        if device.type != "cuda":
            return False
        count = self._count(device)
        before, self._given_back[device] = self._given_back.get(device, count), count
        return count > before

    @staticmethod
    def _count(device: "torch.device") -> int:
        import torch  # noqa: PLC0415 - optional

        return int(torch.cuda.memory_stats(device).get("num_device_free", 0))


def _name(number: int, device: int | None) -> Hashable:
    return number or f"default stream of cuda:{device or 0}"


class Listening:
    """Torch's words on events, passed on to an order from `begin` to `end`."""

    def __init__(self, order: HostOrder, streams: DeviceStreams) -> None:
        def stream(number: int) -> int:
            return order.stream(streams.numbered(number))

        self._heard: dict[str, Callable[..., None]] = {
            "EventCreationCallbacks": order.forget,
            "EventDeletionCallbacks": order.forget,
            "EventRecordCallbacks": lambda event, number: order.record(event, stream(number)),
            "EventWaitCallbacks": lambda event, number: order.wait(event, stream(number)),
            "EventSynchronizationCallbacks": order.synchronize_mark,
            "StreamSynchronizationCallbacks": lambda number: order.synchronize(stream(number)),
            "DeviceSynchronizationCallbacks": order.synchronize,
        }

    def begin(self) -> None:
        """Hear from now on. Raises AllocsimError where this torch does not tell all of it."""
        import torch  # noqa: PLC0415 - optional

        registries = list(self._registries())
        torch._C._activate_gpu_trace()  # noqa: SLF001 - as torch's sanitizer does
        for registry, heard in registries:
            registry.add_callback(heard)

    def end(self) -> None:
        """Hear no more."""
        for registry, heard in self._registries():
            registry.callback_list.remove(heard)

    def _registries(self) -> Iterator[tuple[Any, Callable[..., None]]]:
        from torch.cuda import _gpu_trace  # noqa: PLC0415 - optional

        for name, heard in self._heard.items():
            if not hasattr(_gpu_trace, name):
                raise AllocsimError(f"torch.cuda._gpu_trace has no {name}: streams of this torch cannot be recorded")
            yield getattr(_gpu_trace, name), heard


__all__ = ["CudaStreams", "DeviceStreams", "Listening"]
