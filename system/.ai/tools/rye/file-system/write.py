"""Writes a file of the project, whole, and makes the folders it needs."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = "Writes a file of the project, whole, and makes the folders it needs"
__risk_level__ = "medium"
__effect__ = "idempotent"
__writes__ = ["path"]

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "description": "The file, relative to the project",
        },
        "content": {"type": "string", "description": "All that the file shall hold"},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}

import os

from project_files import Refused, inside, replace, shown, tool


@tool
def execute(params, project):
    path = params["path"]
    real = inside(project, path)
    try:
        content = params["content"].encode("utf-8")
    except UnicodeEncodeError:
        raise Refused("the content holds half of a character") from None
    if os.path.lexists(real) and not os.path.isfile(real):
        raise Refused("%s is there and is no file" % path)
    if path.endswith("/"):
        raise Refused("%s names a folder" % path)
    is_new = not os.path.lexists(real)
    replace(project, real, path, content)
    return {"path": shown(project, real), "bytes": len(content), "created": is_new}
