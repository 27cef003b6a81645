"""How fast placement plans, and how full it gets a cluster compared with other policies."""
