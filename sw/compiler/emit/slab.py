"""Parts of tensors for the vector unit: where they lie in SRAM, how they get there and away."""

from dataclasses import dataclass

from dovetail.sw.compiler.emit.operations import Task, Transfer
from dovetail.sw.compiler.place import Place


@dataclass(frozen=True)
class Slab:
    """Some channels of some rows of a tensor, ``skip`` pixels later if these are parts of rows; ``channel`` and
    ``channels`` count in bytes."""

    first: int
    rows: int
    width: int
    channel: int
    channels: int
    skip: int = 0

    def offset(self, pitch: int) -> int:
        """Bytes from the tensor's start."""
        return (self.first * self.width + self.skip) * pitch + self.channel

    def span(self, pitch: int) -> int:
        """Bytes from its first to its last."""
        return (self.rows * self.width - 1) * pitch + self.channels

    def seen(self, at: int, pitch: int) -> "View":
        """The slab at an address."""
        return View(at, self.span(pitch), pitch)


@dataclass(frozen=True)
class View:
    """A slab in SRAM: address, bytes from its first to its last, bytes between pixels."""

    at: int
    bytes: int
    pitch: int


def operand_of(task: Task, slab: Slab, place: Place, buffer: int) -> View:
    """Where a part of an operand is; loaded to the buffer unless it is resident."""
    if place.sram is not None:
        return slab.seen(place.sram + slab.offset(place.pitch), place.pitch)
    assert place.memory is not None
    task.loads.append(_transfer(slab, place.memory, place.pitch, buffer, slab.channels))
    return slab.seen(buffer, slab.channels)


def result_of(slab: Slab, place: Place, buffer: int) -> View:
    """Where a part of the result goes."""
    if place.sram is not None:
        return slab.seen(place.sram + slab.offset(place.pitch), place.pitch)
    return slab.seen(buffer, slab.channels)


def store(task: Task, slab: Slab, view: View, place: Place) -> None:
    """Store a part of the result if it is to be in system memory."""
    if place.memory is not None:
        task.stores.append(_transfer(slab, place.memory, place.pitch, view.at, view.pitch))


def _transfer(slab: Slab, memory: int, pitch: int, sram: int, sram_pitch: int) -> Transfer:
    start = memory + slab.offset(pitch)
    if slab.channels == pitch == sram_pitch:
        return Transfer(start, sram, slab.rows * slab.width * pitch)
    return Transfer(
        start,
        sram,
        slab.channels,
        rows=slab.width,
        planes=slab.rows,
        memory_row=pitch,
        memory_plane=slab.width * pitch,
        sram_row=sram_pitch,
        sram_plane=slab.width * sram_pitch,
    )
