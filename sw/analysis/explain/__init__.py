"""Explains where the cycles of a compiled network go, exactly.

Every event of a run follows from exactly one earlier one, so a critical path leads from the last cycle back to the
first (`events`). An operation's cycles on it are split by its timing rule (`cycle_parts`) into `causes`. One at a
time, resources are made free, to see what would be next; `comparison` takes two configurations.
"""
