"""Signatures of the buses, seen from the manager: AXI4 read and write channels, AXI4-Lite."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

INCR = 1
"""AxBURST of an incrementing burst."""


class AxiRead(wiring.Signature):
    """Read address and read data channels of AXI4, ``width`` data bits. Without ``id_bits`` one id, in order.

    Raises ValueError unless the width is a power of two of at least 32.
    """

    def __init__(self, width: int, id_bits: int = 0) -> None:
        _check(width)
        self.width = width
        self.id_bits = id_bits
        super().__init__(
            {
                **({"arid": Out(id_bits), "rid": In(id_bits)} if id_bits else {}),
                "araddr": Out(32),
                "arlen": Out(8),
                "arsize": Out(3),
                "arburst": Out(2),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class AxiWrite(wiring.Signature):
    """Write address, write data and write response channels of AXI4, ``width`` data bits. Without ``id_bits`` one id,
    in order.

    Raises ValueError unless the width is a power of two of at least 32.
    """

    def __init__(self, width: int, id_bits: int = 0) -> None:
        _check(width)
        self.width = width
        self.id_bits = id_bits
        super().__init__(
            {
                **({"awid": Out(id_bits), "bid": In(id_bits)} if id_bits else {}),
                "awaddr": Out(32),
                "awlen": Out(8),
                "awsize": Out(3),
                "awburst": Out(2),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(width),
                "wstrb": Out(width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )


class AxiLite(wiring.Signature):
    """AXI4-Lite with 32 data bits and ``address_bits`` of address."""

    def __init__(self, address_bits: int) -> None:
        self.address_bits = address_bits
        super().__init__(
            {
                "awaddr": Out(address_bits),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_bits),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


def _check(width: int) -> None:
    if width < 32 or width & (width - 1):
        raise ValueError(f"AXI data width must be a power of two of at least 32 bits, not {width}")
