"""Shortages of resources of a process's machine: open files, memory, CPU.

A service at its limit of open files accepts no new connection, so no client can query the
reason. A broker and a controller report the shortage themselves, over their existing connection
to the metadata store (`brokers/pressures/<id>`, `controllers/pressures/<id>`). A gateway
reports it in its announcements to the controllers.
"""
