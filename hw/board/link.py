"""The host link: frames of :mod:`dovetail.isa.link` on a UART become accesses to host registers and system memory."""

from collections.abc import Sequence
from struct import unpack_from

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.crc import Processor
from amaranth.lib.crc.catalog import CRC16_CCITT_FALSE
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.board.ports import LinkMemory, check_size
from dovetail.hw.board.uart import Receiver, Transmitter
from dovetail.hw.common.axi import AxiLite
from dovetail.isa.host import ADDRESS_BITS, CONTROL_IRQ, CONTROL_START, HOST_REGISTERS
from dovetail.isa.link import (
    BLOCK,
    IDLE_BITS,
    REQUEST_HEADER,
    SYNC,
    WORD,
    Board,
    Opcode,
    Status,
)

BLOCK_BITS = exact_log2(BLOCK)


class HostLink(wiring.Component):
    """Carries out the requests of a host.

    Parameters
    ----------
    board: what a PING tells.
    divisor: clock cycles per bit of the UART.
    windows: where the registers of each accelerator begin.
    address_bits: of a register's address.

    Members
    -------
    rx, tx: the line from and to the host.
    registers: the accelerators' host registers.
    memory: system memory. A byte that arrives while a write waits is lost, and so is its request.
    irq: the accelerators' interrupts.
    idle: nothing is under way: no byte, and no frame.
    running: of each accelerator, whether there has been no interrupt since START.
    refused: the last request was broken or refused.
    """

    def __init__(
        self, board: Board, *, divisor: int, windows: Sequence[int] = (0,), address_bits: int = ADDRESS_BITS
    ) -> None:
        check_size(board.memory_bytes)
        self.board = board
        self.divisor = divisor
        self.windows = tuple(windows)
        self.address_bits = address_bits
        super().__init__(
            {
                "rx": In(1),
                "tx": Out(1),
                "registers": Out(AxiLite(address_bits)),
                "memory": Out(LinkMemory(board.memory_bytes)),
                "irq": In(len(windows)),
                "idle": Out(1),
                "running": Out(len(windows)),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = Receiver(divisor=self.divisor)
        m.submodules.transmitter = transmitter = Transmitter(divisor=self.divisor)
        m.submodules.crc = crc = CRC16_CCITT_FALSE(data_width=8).create()
        parts = _Parts(receiver, transmitter, crc)
        memory, registers = self.memory, self.registers
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            transmitter.i.payload.eq(parts.word[:8]),
            crc.data.eq(receiver.data),
            memory.write.eq(parts.opcode == Opcode.WRITE),
            memory.address.eq(parts.address[2:]),
            memory.data.eq(parts.word),
            registers.araddr.eq(parts.address),
            registers.awaddr.eq(parts.address),
            registers.wdata.eq(parts.word),
            registers.wstrb.eq(0xF),
            registers.bready.eq(1),
        ]
        with m.If(~receiver.idle | self.idle):
            m.d.sync += parts.timer.eq(0)
        with m.Elif(receiver.tick & ~parts.expired):
            m.d.sync += parts.timer.eq(parts.timer + 1)
        m.d.sync += self.running.eq(self.running & ~self.irq)
        starting = Signal.like(self.running, reset_less=True)  # accelerators that START is still to begin
        with m.FSM():
            self._receive(m, parts)
            self._decide(m, parts, starting)
            self._take_payload(m, parts)
            self._start(m, parts, starting)
            self._access_registers(m, parts, starting)
            self._respond(m, parts)
            self._fetch(m, parts)
        return m

    def _receive(self, m: Module, parts: "_Parts") -> None:
        """The header of a request, up to its CRC."""
        with m.State("REST"):
            m.d.comb += [self.idle.eq(parts.receiver.idle & parts.transmitter.idle), parts.crc.start.eq(1)]
            m.d.sync += [parts.index.eq(0), parts.status.eq(Status.OK)]
            with m.If(parts.receiver.valid & (parts.receiver.data == SYNC)):
                m.next = "HEADER"
        with m.State("HEADER"):
            with m.If(parts.receiver.valid):
                m.d.comb += parts.crc.valid.eq(1)
                m.d.sync += parts.index.eq(parts.index + 1)
                with m.If(parts.index < REQUEST_HEADER.size):
                    m.d.sync += parts.header.eq(Cat(parts.header[8:], parts.receiver.data))
                with m.If(parts.index == REQUEST_HEADER.size + 1):
                    m.next = "DECIDE"
            parts.refuse(m, Status.CRC, parts.expired)

    def _decide(self, m: Module, parts: "_Parts", starting: Signal) -> None:
        """What a header that is whole asks for."""
        address, words, opcode = parts.address, parts.words, parts.opcode
        aligned = ~address[:2].any() & ~parts.length[:2].any() & words.any() & ~parts.length[BLOCK_BITS + 1 :].any()
        in_block = address[2:BLOCK_BITS] + words <= BLOCK // WORD
        in_memory = address[BLOCK_BITS:] < self.board.memory_bytes // BLOCK
        is_register = ~address[self.address_bits :].any() & (words == 1)
        with m.State("DECIDE"):
            m.d.sync += parts.index.eq(0)
            with m.Switch(opcode):
                with m.Case(Opcode.PING):
                    m.d.sync += words.eq(len(self.board.pack()) // WORD)
                    m.next = "RESPOND"
                with m.Case(Opcode.WRITE):
                    m.next = "PAYLOAD"
                    parts.refuse(m, Status.RANGE, ~(aligned & in_block & in_memory))
                with m.Case(Opcode.READ):
                    m.next = "RESPOND"
                    parts.refuse(m, Status.RANGE, ~(aligned & in_block & in_memory))
                with m.Case(Opcode.WRITE_REGISTER):
                    m.next = "PAYLOAD"
                    parts.refuse(m, Status.RANGE, ~(aligned & is_register))
                with m.Case(Opcode.READ_REGISTER):
                    m.next = "READ_REGISTER"
                    parts.refuse(m, Status.RANGE, ~(aligned & is_register))
                with m.Case(Opcode.START):
                    m.d.sync += [
                        starting.eq(address),
                        words.eq(0),
                        parts.word.eq(CONTROL_START.mask | CONTROL_IRQ.mask),
                    ]
                    # The first run has memory as it always is, a further one finds it as the others have left it.
                    m.next = "SETTLE"
                    with m.If(self.running.any()):
                        m.next = "CHOOSE"
                    parts.refuse(m, Status.RANGE, ~address.any() | address[len(starting) :].any())
                with m.Case(Opcode.WAIT):
                    m.d.sync += words.eq(1)
                    m.next = "WAIT"
                with m.Default():
                    parts.refuse(m, Status.OPCODE, Const(1))
            parts.refuse(m, Status.CRC, ~parts.crc.match_detected)

    def _take_payload(self, m: Module, parts: "_Parts") -> None:
        """The payload of a request and its CRC; words for memory go there as they come."""
        came = parts.receiver.valid
        with m.State("PAYLOAD"):
            with m.If(came):
                m.d.comb += parts.crc.valid.eq(1)
                m.d.sync += [parts.shift(), parts.index[:2].eq(parts.index[:2] + 1)]
                with m.If(parts.index[:2] == WORD - 1):
                    m.d.sync += parts.words.eq(parts.words - 1)
                    m.next = "TRAILER"
                    with m.If(self.memory.write):
                        m.next = "WRITE_MEMORY"
            parts.refuse(m, Status.CRC, parts.expired)
        with m.State("WRITE_MEMORY"):
            m.d.comb += self.memory.valid.eq(1)
            with m.If(self.memory.ready):
                m.d.sync += parts.next_word()
                m.next = "PAYLOAD"
                with m.If(~parts.words.any()):
                    m.next = "TRAILER"
        with m.State("TRAILER"):
            with m.If(came):
                m.d.comb += parts.crc.valid.eq(1)
                m.d.sync += parts.index[0].eq(1)
                with m.If(parts.index[0]):
                    m.next = "VERIFY"
            parts.refuse(m, Status.CRC, parts.expired)
        with m.State("VERIFY"):
            m.next = "WRITE_REGISTER"
            with m.If(self.memory.write):
                m.next = "RESPOND"
            parts.refuse(m, Status.CRC, ~parts.crc.match_detected)

    def _start(self, m: Module, parts: "_Parts", starting: Signal) -> None:
        """Memory forgets its history; then the accelerators begin one after the other."""
        with m.State("SETTLE"):
            m.d.comb += self.memory.settle.eq(1)
            with m.If(self.memory.settled):
                m.next = "CHOOSE"
        with m.State("CHOOSE"):
            m.next = "WRITE_REGISTER"
            m.d.sync += starting.eq(starting & (starting - 1))
            for bit, window in reversed([*zip(starting, self.windows, strict=True)]):
                with m.If(bit):
                    m.d.sync += parts.address.eq(window | HOST_REGISTERS["CONTROL"].offset)

    def _access_registers(self, m: Module, parts: "_Parts", starting: Signal) -> None:
        """Accesses to the accelerators' registers, and the wait for an interrupt."""
        bus = self.registers
        with m.State("WRITE_REGISTER"):
            m.d.comb += [bus.awvalid.eq(1), bus.wvalid.eq(1)]
            with m.If(bus.awready & bus.wready):
                m.next = "WROTE_REGISTER"
        with m.State("WROTE_REGISTER"), m.If(bus.bvalid):
            m.next = "RESPOND"
            # The interrupt of the run before goes down in the next cycle.
            with m.If(parts.opcode == Opcode.START):
                here = Cat(parts.address[ADDRESS_BITS:] == window >> ADDRESS_BITS for window in self.windows)
                m.d.sync += self.running.eq((self.running & ~self.irq) | here)
                with m.If(starting.any()):
                    m.next = "CHOOSE"
            parts.refuse(m, Status.BUS, bus.bresp.any())
        with m.State("READ_REGISTER"):
            m.d.comb += bus.arvalid.eq(1)
            with m.If(bus.arready):
                m.next = "FOUND_REGISTER"
        with m.State("FOUND_REGISTER"), m.If(bus.rvalid):
            m.d.comb += bus.rready.eq(bus.rresp.any())
            m.next = "RESPOND"  # the bus holds the value until FETCH takes it
            parts.refuse(m, Status.BUS, bus.rresp.any())
        with m.State("WAIT"):
            m.d.sync += parts.address.eq(parts.address - 1)
            with m.If(self.irq.any() | ~parts.address.any()):
                m.next = "RESPOND"

    def _respond(self, m: Module, parts: "_Parts") -> None:
        """The response: header, words of the payload, CRC."""
        transmitter, crc, index = parts.transmitter, parts.crc, parts.index
        with m.State("REFUSE"), m.If(parts.expired):
            m.d.sync += parts.words.eq(0)
            m.next = "RESPOND"
        with m.State("RESPOND"):
            length = Cat(Const(0, 2), parts.words)
            m.d.sync += [
                parts.word.eq(Cat(Const(SYNC, 8), parts.status, Const(0, 1), parts.tag, length)),
                index.eq(0),
                self.refused.eq(parts.status != Status.OK),
            ]
            m.next = "SEND"
        with m.State("SEND"):
            m.d.comb += [transmitter.i.valid.eq(1), crc.data.eq(parts.word[:8]), crc.start.eq(~index.any())]
            with m.If(transmitter.i.ready):
                m.d.comb += crc.valid.eq(index.any())
                m.d.sync += [parts.shift(), index[:3].eq(index[:3] + 1)]
                with m.If(index[:2] == WORD - 1):
                    m.next = "SEND_CRC"
                    with m.If(parts.words.any()):
                        m.next = "FETCH"
        with m.State("SEND_CRC"):
            # What is sent of a CRC goes into the CRC as well, which leaves its other byte on top.
            m.d.comb += [transmitter.i.valid.eq(1), transmitter.i.payload.eq(crc.crc[8:]), crc.data.eq(crc.crc[8:])]
            with m.If(transmitter.i.ready):
                m.d.comb += crc.valid.eq(1)
                m.d.sync += index[0].eq(1)
                with m.If(index[0]):
                    m.next = "REST"

    def _fetch(self, m: Module, parts: "_Parts") -> None:
        """The next word of the response."""
        word = parts.word
        with m.State("FETCH"):
            m.d.sync += [parts.index.eq(WORD), parts.words.eq(parts.words - 1)]
            m.next = "SEND"
            with m.Switch(parts.opcode):
                with m.Case(Opcode.READ):
                    m.d.comb += self.memory.valid.eq(1)
                    m.d.sync += parts.words.eq(parts.words)
                    m.next = "FETCH"
                    with m.If(self.memory.ready):
                        m.next = "FETCHED"
                with m.Case(Opcode.READ_REGISTER):
                    m.d.comb += self.registers.rready.eq(1)
                    m.d.sync += word.eq(self.registers.rdata)
                with m.Case(Opcode.WAIT):
                    m.d.sync += word.eq(self.irq)
                with m.Case(Opcode.PING), m.Switch(parts.words):
                    fields = unpack_from(f"<{len(self.board.pack()) // WORD}I", self.board.pack())
                    for left, value in enumerate(reversed(fields), 1):
                        with m.Case(left):
                            m.d.sync += word.eq(value)
        with m.State("FETCHED"), m.If(self.memory.answer):
            m.d.sync += [word.eq(self.memory.read_data), parts.words.eq(parts.words - 1), parts.next_word()]
            m.next = "SEND"


class _Parts:
    """What the states of the link share. The first of them sets what a request needs, so no register needs a reset."""

    def __init__(self, receiver: Receiver, transmitter: Transmitter, crc: Processor) -> None:
        self.receiver, self.transmitter, self.crc = receiver, transmitter, crc
        self.header = Signal(8 * REQUEST_HEADER.size, reset_less=True)
        self.opcode, self.tag = self.header[:4], self.header[4:8]
        self.address = self.header[8:40]
        self.length = self.header[40:]
        self.words = self.length[2 : BLOCK_BITS + 1]
        """Of the payload of a request or a response, still to come or to go."""
        self.word = Signal(32, reset_less=True)
        self.index = Signal(range(REQUEST_HEADER.size + 2), reset_less=True)
        """Bytes of the header, of the word or of the CRC so far; from 4 on in the payload of a response."""
        self.status = Signal(Status, reset_less=True)
        self.timer = Signal(range(IDLE_BITS + 1), reset_less=True)
        self.expired = self.timer[-1]

    def refuse(self, m: Module, status: Status, condition: Value) -> None:
        """Ends the request with an error, if ``condition``."""
        with m.If(condition):
            m.d.sync += self.status.eq(status)
            m.next = "REFUSE"

    def shift(self) -> object:
        """Takes a byte from the line into the word, or one out of it."""
        return self.word.eq(Cat(self.word[8:], self.receiver.data))

    def next_word(self) -> object:
        """Address of the next word of memory."""
        low = self.address[2:BLOCK_BITS]
        return low.eq(low + 1)
