"""Builds a version: here, writes a file with its number."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "lib"
__tool_description__ = "Builds a version"
__effect__ = "idempotent"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"version": {"type": "string"}},
    "required": ["version"],
}

import os


def execute(params, project_path):
    artifact = "build-%s.txt" % params["version"]
    text = "version %s\n" % params["version"]
    with open(os.path.join(project_path, artifact), "w", encoding="utf-8") as file:
        file.write(text)
    return {"artifact": artifact, "size": len(text)}
