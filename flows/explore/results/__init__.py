"""Results: as records, frames, tables, layers; and how constraints fare."""
