"""The result store: database, schema, writer and lock."""
