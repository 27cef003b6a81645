"""A MOCK device plugin: the kubelet's v1beta1 interface over real sockets, devices from a description."""
