"""Stands in for a broker, controller or gateway: listens where its configuration says, and
records its stop request in a file of the cluster's directory. The stand-in of the gateway
answers health checks."""

import signal
import socket
import sys
import threading
import tomllib
from pathlib import Path

settings_path = Path(sys.argv[sys.argv.index("--config") + 1])
settings = tomllib.loads(settings_path.read_text())
if settings.get("rack") == "on fire":
    raise SystemExit("the rack is on fire")
host, port = settings["listen"].split(":")
listener = socket.create_server((host, int(port)))


def answer() -> None:
    while True:
        connection, _ = listener.accept()
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        connection.close()


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
if "bootstrap" in settings:
    threading.Thread(target=answer, daemon=True).start()
sys.stdout.write(f"serving {settings}\n")
sys.stdout.flush()
signal.sigwait({signal.SIGTERM})
with (settings_path.parent.parent / "ended").open("a") as ended:
    ended.write(settings_path.stem + "\n")
