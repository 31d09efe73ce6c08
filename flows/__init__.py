"""The dovetail command and the design flows behind it."""
