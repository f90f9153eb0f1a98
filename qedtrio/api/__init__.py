"""HTTP: the server, the table of routes, and one module a dialect."""
