"""The demo: a real model on this machine, five things no queue can do, and a record of what happened."""
