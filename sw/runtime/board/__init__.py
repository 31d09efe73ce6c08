"""A real board at a serial port: the host link, and the engine ``board`` on top of it."""

from dovetail.sw.runtime.board.board_engine import BoardEngine
from dovetail.sw.runtime.board.link import Link, LinkError

__all__ = ["BoardEngine", "Link", "LinkError"]
