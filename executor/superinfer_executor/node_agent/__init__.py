"""The node agent: reads the devices of its node and publishes them as NodeTopology."""
