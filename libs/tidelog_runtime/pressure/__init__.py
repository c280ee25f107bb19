"""Resources of its machine that a process runs out of: open files, memory, CPU.

A service at its limit of open files takes no new connection, so nothing can ask it why. A broker
and a controller report the shortage themselves, over the connection to the metadata store that they
have already (`brokers/pressures/<id>`, `controllers/pressures/<id>`); a gateway reports it in its
announcements to the controllers."""
