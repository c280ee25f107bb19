"""Resources of its machine that a process runs out of: open files, memory, CPU.

A broker at its limit of open files takes no new connection, so nothing can ask it why. It reports
the shortage itself, over the connection to the metadata store that it has already
(`brokers/pressures/<id>`)."""
