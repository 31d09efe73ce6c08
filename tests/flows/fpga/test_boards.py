"""The boards that Dovetail builds for, and the page that names them."""

from pathlib import Path

from dovetail.flows.fpga.design.boards import BOARDS

PAGE = Path(__file__).resolve().parents[3] / "docs/build.md"


def test_the_page_has_every_board() -> None:
    table = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for board in BOARDS.values():
        (row,) = (line for line in table if f"`{board.name}`" in line.split("|")[1] and len(line.split("|")) == 7)
        assert board.part.name[-4:] in row
        assert f" {board.oscillator / 1e6:g} MHz | {board.frequency / 1e6:g} MHz " in row
