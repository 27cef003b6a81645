"""A MOCK DRA driver: ResourceSlices with NVIDIA's names, and the kubelet's v1 interface over real sockets."""
