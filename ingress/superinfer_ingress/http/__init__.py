"""HTTP: the connection, bodies, headers, errors. Nothing here decides anything about contracts."""
