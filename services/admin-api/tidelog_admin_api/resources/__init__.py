"""One router for each resource: it parses requests, calls the cluster and answers in JSON."""
