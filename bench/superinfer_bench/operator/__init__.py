"""The operator against a real kube-apiserver and etcd: a large cluster, cold, edited, restarted, idle."""
