"""Reads a text file of the project, or some of its lines."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = "Reads a text file of the project, or some of its lines"
__risk_level__ = "low"
__effect__ = "pure"
__reads__ = ["path"]

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "description": "The file, relative to the project",
        },
        "offset": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "The first line to read, counted from 1",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "default": 2000,
            "description": "Maximum number of lines to read",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}

import os

from project_files import Refusal, resolve, open_file, shown, tool

# The maximum size of a result; leaves room for JSON escapes.
MAX_BYTES = 200 * 1024
MAX_LINE_BYTES = 20 * 1024


def lines(file):
    """Each line, truncated if it is long, and whether it was truncated."""
    while True:
        line, is_cut = file.readline(MAX_LINE_BYTES), False
        if not line:
            return
        while not line.endswith(b"\n"):
            more = file.readline(MAX_LINE_BYTES)
            if not more:
                break
            is_cut = True
            if more.endswith(b"\n"):
                line += b"\n"
        yield line, is_cut


@tool
def execute(params, project):
    path = params["path"]
    real = resolve(project, path)
    selected, size, was_cut, following = [], 0, False, None
    with open_file(project, real, path) as file:
        total = os.fstat(file.fileno()).st_size
        if b"\0" in file.read(8192):
            raise Refusal("%s is binary, %d bytes" % (path, total))
        file.seek(0)
        for number, (line, is_cut) in enumerate(lines(file), 1):
            if number < params["offset"]:
                continue
            size += len(line)
            if len(selected) == params["limit"] or size > MAX_BYTES:
                following = number
                break
            selected.append(line)
            was_cut = was_cut or is_cut
    content = b"".join(selected)
    result = {
        "path": shown(project, real),
        "content": content.decode("utf-8", "replace"),
        "lines": len(selected),
        "size": total,
        "truncated": was_cut or following is not None,
    }
    if following is not None:
        result["next_offset"] = following
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        result["note"] = "it is not UTF-8: bytes that are none were replaced"
    return result
