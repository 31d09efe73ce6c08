"""Constants of the front end and of the program's start and end."""

FIRST_ACTION = 0
"""Cycle of the front end's first action, the push of fetch(0); cycle 0 is the first cycle of `busy`."""

PAGE_READY = 3
"""Cycles from the end of a page's fetch to the first action that may follow from it (the page buffer and the decoder
are a register stage each). Where the fetch ended long ago the action follows the page before without a gap."""

END_TO_DONE = 2
"""CYCLES is this many more than the number of the last cycle in which anything happened: END's dispatch, a pop, the
end of an operation or fetch, the fault. (`busy` lasts one cycle longer than that, and cycles count from 0.)"""
