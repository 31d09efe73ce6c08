"""The configuration: what a user gives, what follows from it, and the presets."""
