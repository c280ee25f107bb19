"""In place of a broker or controller: listens where its configuration says, and notes
in a file of the cluster's directory when it is asked to end."""

import signal
import socket
import sys
import tomllib
from pathlib import Path

settings_path = Path(sys.argv[sys.argv.index("--config") + 1])
settings = tomllib.loads(settings_path.read_text())
if settings.get("rack") == "on fire":
    raise SystemExit("the rack is on fire")
host, port = settings["listen"].split(":")
listener = socket.create_server((host, int(port)))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
sys.stdout.write(f"serving {settings}\n")
sys.stdout.flush()
signal.sigwait({signal.SIGTERM})
with (settings_path.parent.parent / "ended").open("a") as ended:
    ended.write(settings_path.stem + "\n")
