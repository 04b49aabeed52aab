"""Where ranks meet in a collective of `torch.distributed`: its group, by ranks.

    met = meeting_of(schema, args, kwargs)
    met.group, met.ranks            # "ranks 0, 1", (0, 1)

An operator of `c10d` is given its process group, one of `_c10d_functional` the name of one. A group
is called by its ranks, so that every rank calls it alike.

What this module does not see: when a collective is done
(`allocsim.systems.torch.pending_collectives`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocsim.systems.torch.operators import COLLECTIVES, UNEVEN

FUNCTIONAL: Final = "_c10d_functional"
"""The namespace of operators that return what they make, and are waited for by one more."""

WAIT: Final = "wait_tensor"
"""That one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMeeting:
    """The group of a collective."""

    ranks: tuple[int, ...]
    place: int
    """Of this rank among them."""
    even: bool
    """Whether all of them bring as many bytes."""
    name: str
    """What torch calls the process group: several may be of the same ranks."""
    libraries: Mapping[str, str]
    """Kind of a device -> what carries its tensors, `gloo`."""
    functional: bool
    """Whether what it returns is waited for by an operator of its own."""

    def library(self, device: Any) -> str:
        """Return what carries tensors of a device, "" where nobody says."""
        return "" if device is None else self.libraries.get(device.type, "")

    @property
    def group(self) -> str:
        """What the group is called."""
        return f"ranks {', '.join(map(str, self.ranks))}"


def meeting_of(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GroupMeeting | None:
    """Return where ranks meet in an operator, None for one in which they do not."""
    space, _, name = schema.name.partition("::")
    if not (space == "c10d" and name in COLLECTIVES) and space != FUNCTIONAL:
        return None
    import torch.distributed as dist  # noqa: PLC0415 - optional; an operator of it has just been called

    given = {
        argument.name: args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(schema.arguments)
    }
    told = given.get("process_group", given.get("group_name"))
    if told is None:  # one that waits
        return None
    if isinstance(told, str):
        group = dist.distributed_c10d._resolve_process_group(told)  # noqa: SLF001 - what its own operators use
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
    """Return `cpu:gloo,cuda:nccl` as a mapping."""
    return dict(pair.split(":", 1) for pair in said.split(",") if ":" in pair)


def world() -> int:
    """Return how many ranks there are, 0 where nobody has begun a group of all."""
    import torch.distributed as dist  # noqa: PLC0415 - optional

    return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 0


__all__ = ["WAIT", "GroupMeeting", "meeting_of", "world"]
