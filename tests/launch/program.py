"""Runs a script in a process that server.py forks: `python program.py SOCKET script.py arguments...`."""

import json
import os
import socket
import sys

connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect(sys.argv[1])
job = {"arguments": sys.argv[2:], "environment": dict(os.environ), "directory": os.getcwd()}
socket.send_fds(connection, [json.dumps(job).encode()], [0, 1, 2])
_, code = connection.makefile().readline().split()
if int(code) < 0:
    os.kill(os.getpid(), -int(code))
sys.exit(int(code))
