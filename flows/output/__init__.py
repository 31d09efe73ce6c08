"""What commands print: reports, tables, messages."""
