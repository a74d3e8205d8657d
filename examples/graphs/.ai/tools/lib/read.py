"""Reads a text file."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "lib"
__tool_description__ = "Reads a text file"
__effect__ = "pure"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}

import os


def execute(params, project_path):
    path = os.path.join(project_path, params["path"])
    if not os.path.isfile(path):
        return {"success": False, "error": "no such file: %s" % params["path"]}
    with open(path, encoding="utf-8") as file:
        return {"text": file.read()}
