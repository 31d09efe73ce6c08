"""What commands print: replies, tables, messages."""
