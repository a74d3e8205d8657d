"""Publishes an artifact: here, appends a line to a file."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "lib"
__tool_description__ = "Publishes an artifact"
__effect__ = "at_most_once"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"artifact": {"type": "string"}},
    "required": ["artifact"],
}

import os


def execute(params, project_path):
    with open(os.path.join(project_path, "published.txt"), "a", encoding="utf-8") as file:
        file.write(params["artifact"] + "\n")
    return {"published": True}
