"""Constants of the front end and of the program's start and end."""

FIRST_ACTION = 0
"""Cycle of the front end's first action, the push of fetch(0); cycle 0 is the first cycle of `busy`."""

PAGE_READY = 3
"""Cycles from the end of a page's fetch to the first action that may follow from it (the page buffer and the decoder
are a register stage each). Where the fetch ended long ago the action follows the page before without a gap."""

END_TO_DONE = 2
"""CYCLES counts from cycle 0 to this many cycles after the last one in which anything happened: END's dispatch, the
last pop, the end of the last operation or fetch, or the fault. So `busy` is last seen in the cycle before that."""
