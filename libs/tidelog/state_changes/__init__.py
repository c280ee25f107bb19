"""State changes of a cluster: events in stages, the same in logs, in the API, in the topic
`__state_changes` and in the pipeline."""
