"""The controller: elects leaders, creates and deletes topics, notices crashes."""

import os

# gRPC's core writes its own lines to stderr, in a form of its own. It reads this once,
# when grpc is first imported; what matters comes as a status or an exception.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
