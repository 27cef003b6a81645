"""SLOContracts: what they come to, and what is written into their status."""
