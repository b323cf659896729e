"""Runs a script in a process that script_server.py forks: `python script_client.py SOCKET script.py arguments...`."""

import json
import os
import socket
import sys

connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect(sys.argv[1])
job = {"arguments": sys.argv[2:], "environment": dict(os.environ), "directory": os.getcwd()}
socket.send_fds(connection, [json.dumps(job).encode()], [0, 1, 2])
code = int(connection.makefile().readline() or 1)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
