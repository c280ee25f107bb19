"""Bodies of requests and answers, one file for each kind of resource.

Fields are named as in `admin.proto` and in the CLI's --json output.
"""
