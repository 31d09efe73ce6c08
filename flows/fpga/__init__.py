"""From an accelerator to a bitstream: boards, clocks, the tools, their reports, and the export to Vivado."""
