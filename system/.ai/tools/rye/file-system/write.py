"""Writes a whole file of the project and creates missing directories."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = "Writes a whole file of the project and creates missing directories"
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
        "content": {"type": "string", "description": "The whole content of the file"},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}

import os

from project_files import Refusal, resolve, replace, shown, tool


@tool
def execute(params, project):
    path = params["path"]
    real = resolve(project, path)
    try:
        content = params["content"].encode("utf-8")
    except UnicodeEncodeError:
        raise Refusal("the content contains half of a surrogate pair") from None
    if os.path.lexists(real) and not os.path.isfile(real):
        raise Refusal("%s exists and is not a regular file" % path)
    if path.endswith("/"):
        raise Refusal("%s is the path of a directory" % path)
    is_new = not os.path.lexists(real)
    replace(project, real, path, content)
    return {"path": shown(project, real), "bytes": len(content), "created": is_new}
