"""Model and RTL side by side: programs, networks, faults; where they differ first."""
