"""The kubelet's pod-resources interface; generated from the .proto file beside it (`make gen-gpu`)."""
