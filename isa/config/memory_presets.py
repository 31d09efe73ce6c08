"""Times of memory chips, as JEDEC's standards and datasheets have them; ``ck``: periods of the chip's clock."""

from typing import Any

SDRAM_NANOSECONDS = {"rcd": 20, "rp": 20, "ras": 50, "rfc": 70, "wr": 15, "refresh_interval": 7800}
"""Of a chip of SDRAM, no shorter than any grade of the IS42S16160 needs them to be. Those of a GW2AR-18's are no
longer, and it has fewer rows to refresh."""

PRESETS: dict[str, dict[str, Any]] = {
    # JESD79-3F, 1600K (11-11-11), 4 Gbit, x16: pages of 2 KiB.
    "ddr3-1600-x16": {
        "dram_clock": "800 MHz",
        "width": 16,
        "burst_length": 8,
        "groups": 1,
        "banks": 8,
        "row": "2 KiB",
        "cl": "11 ck",
        "cwl": "8 ck",
        "rcd": "13.75 ns",
        "rp": "13.75 ns",
        "ras": "35 ns",
        "rtp": "7.5 ns",
        "wr": "15 ns",
        "ccd": "4 ck",
        "ccd_l": "4 ck",
        "rrd": "7.5 ns",
        "rrd_l": "7.5 ns",
        "faw": "40 ns",
        "wtr": "7.5 ns",
        "wtr_l": "7.5 ns",
        "rfc": "260 ns",
        "refi": "7.8 us",
    },
    # JESD79-4, 2400T (17-17-17), 8 Gbit, x16: two bank groups, pages of 2 KiB.
    "ddr4-2400-x16": {
        "dram_clock": "1200 MHz",
        "width": 16,
        "burst_length": 8,
        "groups": 2,
        "banks": 4,
        "row": "2 KiB",
        "cl": "17 ck",
        "cwl": "12 ck",
        "rcd": "14.16 ns",
        "rp": "14.16 ns",
        "ras": "32 ns",
        "rtp": "7.5 ns",
        "wr": "15 ns",
        "ccd": "4 ck",
        "ccd_l": "6 ck",
        "rrd": "5.3 ns",
        "rrd_l": "6.4 ns",
        "faw": "30 ns",
        "wtr": "3 ck",
        "wtr_l": "7.5 ns",
        "rfc": "350 ns",
        "refi": "7.8 us",
    },
    # JESD209-4, 3200, one channel of 8 Gbit, x16; WL of set A. Its READ latency has tDQSCK's 3.5 ns too.
    "lpddr4-3200-x16": {
        "dram_clock": "1600 MHz",
        "width": 16,
        "burst_length": 16,
        "groups": 1,
        "banks": 8,
        "row": "2 KiB",
        "cl": "34 ck",
        "cwl": "14 ck",
        "rcd": "18 ns",
        "rp": "18 ns",
        "ras": "42 ns",
        "rtp": "7.5 ns",
        "wr": "18 ns",
        "ccd": "8 ck",
        "ccd_l": "8 ck",
        "rrd": "10 ns",
        "rrd_l": "10 ns",
        "faw": "40 ns",
        "wtr": "10 ns",
        "wtr_l": "10 ns",
        "rfc": "280 ns",
        "refi": "3.904 us",
    },
}
"""Channels of DRAM, by name."""
