"""Plans system memory: constants first, then tensors by liveness, then the instruction stream."""

from dovetail.isa.config import ceil_div

ALIGN = 4096
"""Every buffer starts on a 4 KiB boundary, so that bursts are cut alike wherever a buffer lies."""


def align(size: int) -> int:
    """``size`` rounded up to the alignment."""
    return ceil_div(size, ALIGN) * ALIGN


def allocate(buffers: dict[str, tuple[int, int, int]], base: int) -> tuple[dict[str, int], int]:
    """First-fit placement by liveness.

    Parameters
    ----------
    buffers
        name -> (bytes, first step, last step) in which the buffer must keep its contents.
    base
        First free address.

    Returns
    -------
    Address of each buffer, and the end of the area.
    """
    placed: list[tuple[int, int, int, int]] = []  # (address, end, first, last)
    where: dict[str, int] = {}
    for name, (size, first, last) in sorted(buffers.items(), key=lambda item: (-item[1][0], item[1][1])):
        address = base
        for low, high, begin, end in sorted(placed):
            if begin <= last and first <= end:
                if address + align(size) <= low:
                    break
                address = max(address, high)
        where[name] = address
        placed.append((address, address + align(size), first, last))
    return where, max((end for _, end, _, _ in placed), default=base)
