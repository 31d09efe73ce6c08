"""Pictures as figures: functions of plain data that write no file. `style.figure_bytes` gives always the same bytes."""
