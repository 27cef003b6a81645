"""What a cluster's API server knows, as the ingress needs it: executors, pools, contracts, keys, replicas."""
