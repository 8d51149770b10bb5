"""A server of tools over standard input and output, with the official SDK: serve.py FOLDER

Each call of a tool leaves a line in FOLDER/calls, so that tests can count them. While FOLDER/hang exists, `read` and `write`
come to no end.
"""

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

folder = Path(sys.argv[1])
server = MCPServer("tests")


def note(line: str) -> None:
    with open(folder / "calls", "a") as calls:
        calls.write(line + "\n")
        calls.flush()
        os.fsync(calls.fileno())


def hang() -> None:
    while (folder / "hang").exists():
        time.sleep(0.01)


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def read(path: str) -> str:
    """Reads a file."""
    note(f"read {path}")
    hang()
    return f"content of {path}"


@server.tool()
def write(path: str) -> str:
    """Writes a file."""
    note(f"write {path}")
    hang()
    return f"written {path}"


@server.tool()
def remove(path: str) -> str:
    """Removes a file."""
    note(f"remove {path}")
    return f"removed {path}"


@server.tool()
def environment(name: str) -> str:
    """The value of an environment variable."""
    return os.environ.get(name, "(not set)")


server.run("stdio")
