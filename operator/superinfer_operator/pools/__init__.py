"""ChipletPools: what is written into their status, and what is made for them."""
