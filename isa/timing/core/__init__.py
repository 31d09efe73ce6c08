"""Plays programs: queues, waits, faults and the order of time, compiled and in Python."""
