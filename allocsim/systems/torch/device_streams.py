"""Finds the stream on which an operator of a running PyTorch program runs, and records the waits
that torch reports. Only this module and `eager_recording` read `torch.cuda`.

`CudaStreams` names the current stream of a device. `Listening` registers callbacks for events and
synchronisations and passes the reports on to the ledger's `order`. The callbacks are those of
`torch.cuda._gpu_trace`, which torch's own sanitizer also uses (torch/cuda/_sanitizer.py):

| torch reports | what the order records |
|---|---|
| an event was recorded on a stream | a mark after the ops that were issued on the stream so far |
| a stream waits for an event | the stream's next op comes after the mark; `wait_stream` is reported as a recorded event and a wait for it |
| an event, a stream or the device was synchronised | later ops of the host come after the ops waited for |
| an event was created or deleted | the mark with the number of the event is dropped |

The name of a stream is the number of its `cudaStream_t`; the default stream of each device has the
number 0 and a name with the device's number. An event from before the recording orders no recorded
op.

What this module does not see: polls (`Event.query`), which are recorded as ordering nothing; the
waits of the legacy default stream for streams that were made without `cudaStreamNonBlocking` (torch
makes its streams with this flag); collectives that wait without these callbacks; captured graphs. A
synchronisation of one device is recorded as a synchronisation of all devices.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from allocsim.errors import AllocsimError
from allocsim.programs.host_order import HostOrder
from allocsim.systems.torch.ledger import HOST

if TYPE_CHECKING:
    import torch


class DeviceStreams(Protocol):
    """The interface by which a recording finds the streams of devices."""

    def current(self, device: "torch.device") -> Hashable:
        """Return the current stream of a device, or `HOST` for a device without streams."""

    def named(self, stream: "torch.Stream") -> Hashable:
        """Return the name of a stream that the program passed to torch."""

    def numbered(self, number: int) -> Hashable:
        """Return the name of a stream that torch reports by its number."""

    def gave_back(self, device: "torch.device") -> bool:
        """Return whether the allocator has returned memory to a device since the last call."""


class CudaStreams:
    """The streams of `torch.cuda`."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - optional

        devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
        self._given_back = {device: self._count(device) for device in devices}

    def current(self, device: "torch.device") -> Hashable:
        """Return the name of the current stream, or `HOST` if the device is not a CUDA device."""
        import torch  # noqa: PLC0415 - optional

        if device.type != "cuda":
            return HOST
        return _name(torch.cuda.current_stream(device).cuda_stream, device.index)

    def named(self, stream: "torch.Stream") -> Hashable:
        """Return the name of a stream."""
        import torch  # noqa: PLC0415 - optional

        same = torch.cuda.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        )
        return _name(same.cuda_stream, stream.device_index)

    def numbered(self, number: int) -> Hashable:
        """Return the name of the stream with this number on the current device."""
        import torch  # noqa: PLC0415 - optional

        return number or _name(0, torch.cuda.current_device())

    def gave_back(self, device: "torch.device") -> bool:
        """Return whether the allocator has called `cudaFree` since the last call of this method.
        `cudaFree` waits for the whole device. Return False if the device is not a CUDA device.
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
    """Passes torch's reports about events on to a `HostOrder`, from `begin` until `end`."""

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
        """Register the callbacks. Raises AllocsimError if this torch lacks one of them."""
        import torch  # noqa: PLC0415 - optional

        registries = list(self._registries())
        torch._C._activate_gpu_trace()  # noqa: SLF001 - as torch's sanitizer does
        for registry, heard in registries:
            registry.add_callback(heard)

    def end(self) -> None:
        """Remove the callbacks."""
        for registry, heard in self._registries():
            registry.callback_list.remove(heard)

    def _registries(self) -> Iterator[tuple[Any, Callable[..., None]]]:
        from torch.cuda import _gpu_trace  # noqa: PLC0415 - optional

        for name, heard in self._heard.items():
            if not hasattr(_gpu_trace, name):
                raise AllocsimError(
                    f"torch.cuda._gpu_trace has no {name}: streams of this version of torch cannot be recorded"
                )
            yield getattr(_gpu_trace, name), heard


__all__ = ["CudaStreams", "DeviceStreams", "Listening"]
