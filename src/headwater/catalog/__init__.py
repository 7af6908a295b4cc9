"""The catalog: what headwater knows about stream tables, kept in tables of the user's database."""
