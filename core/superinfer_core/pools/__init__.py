"""What a ChipletPool comes to: how many executors, when failed ones are tried again, its conditions. Pure."""
