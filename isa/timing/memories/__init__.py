"""What may lie behind the bus: when each kind of memory answers, in Python and for the compiled core."""
