"""The verbs inside a database: in the server itself, or by requests that another process serves."""
