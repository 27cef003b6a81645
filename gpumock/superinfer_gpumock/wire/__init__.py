"""The kubelet's gRPC interfaces for plugins; generated from the .proto files beside it (`make gen-gpu`)."""
