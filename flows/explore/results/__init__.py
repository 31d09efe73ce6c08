"""Results as records, frames, tables and layers; what each constraint excludes."""
