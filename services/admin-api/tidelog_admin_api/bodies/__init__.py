"""What requests carry and answers hold: one file for each kind of thing. Field names are those of
`admin.proto` and of the command line's --json."""
