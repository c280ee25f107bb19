"""One router a resource: what is asked is parsed, passed to the cluster, and told in JSON."""
