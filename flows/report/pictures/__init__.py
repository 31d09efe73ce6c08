"""Pictures as PNG or SVG bytes: functions of plain data that write no file and always give the same bytes."""
