"""What checkpoints cost: the same load on a real engine without them, with them, and with copies."""
