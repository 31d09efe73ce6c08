"""The result store: its database and schema, who writes and who locks."""
