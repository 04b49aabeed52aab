"""Finds the group of ranks that take part in a collective of `torch.distributed`.

    met = meeting_of(schema, args, kwargs)
    met.group, met.ranks            # "ranks 0, 1", (0, 1)

An operator of `c10d` has its process group as an argument; an operator of `_c10d_functional` has
the name of the group. Here a group is named by its ranks, so all ranks record the same name.

What this module does not see: when a collective ends (see `pending_collectives`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocsim.systems.torch.operators import COLLECTIVES, UNEVEN

FUNCTIONAL: Final = "_c10d_functional"
"""The namespace of collective operators that return new tensors; `wait_tensor` waits for these."""

WAIT: Final = "wait_tensor"
"""The operator that waits for a functional collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMeeting:
    """The group of ranks that takes part in one collective."""

    ranks: tuple[int, ...]
    place: int
    """The position of this rank in `ranks`."""
    even: bool
    """Whether every rank passes the same number of bytes."""
    name: str
    """torch's name of the process group; several groups may have the same ranks."""
    libraries: Mapping[str, str]
    """Type of a device -> the library that communicates its tensors, such as `gloo`."""
    functional: bool
    """Whether the operator is in `_c10d_functional`; `wait_tensor` then waits for its result."""

    def library(self, device: Any) -> str:
        """Return the library that communicates a device's tensors, or "" if torch names none."""
        return "" if device is None else self.libraries.get(device.type, "")

    @property
    def group(self) -> str:
        """The name of the group, such as `ranks 0, 1`."""
        return f"ranks {', '.join(map(str, self.ranks))}"


def meeting_of(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GroupMeeting | None:
    """Return the group of a collective operator, or None for any other operator."""
    space, _, name = schema.name.partition("::")
    if not (space == "c10d" and name in COLLECTIVES) and space != FUNCTIONAL:
        return None
    import torch.distributed as dist  # noqa: PLC0415 - optional; an operator of this module has been called, so it is installed

    given = {
        argument.name: args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(schema.arguments)
    }
    told = given.get("process_group", given.get("group_name"))
    if told is None:  # `wait_tensor` has no group argument
        return None
    if isinstance(told, str):
        group = dist.distributed_c10d._resolve_process_group(told)  # noqa: SLF001 - its operators use this function
    else:
        group = told if isinstance(told, dist.ProcessGroup) else dist.ProcessGroup.unbox(told)
    split = [given.get(name) for name in ("output_split_sizes", "input_split_sizes")]
    even = name not in UNEVEN and not any(split)
    return GroupMeeting(
        ranks=tuple(dist.get_process_group_ranks(group)),
        place=dist.get_rank(group),
        even=even,
        name=str(group.group_name),
        libraries=_libraries(dist.get_backend_config(group)),
        functional=space == FUNCTIONAL,
    )


def _libraries(said: str) -> dict[str, str]:
    """Return a text such as `cpu:gloo,cuda:nccl` as a mapping from device type to library."""
    return dict(pair.split(":", 1) for pair in said.split(",") if ":" in pair)


def world() -> int:
    """Return the number of ranks; 0 if `torch.distributed` is not initialised."""
    import torch.distributed as dist  # noqa: PLC0415 - optional

    return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 0


__all__ = ["WAIT", "GroupMeeting", "meeting_of", "world"]
