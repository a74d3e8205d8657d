"""Counts the files of a directory or their lines."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "lib"
__tool_description__ = "Counts the files of a directory or their lines"
__effect__ = "pure"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "what": {"type": "string", "enum": ["files", "lines"]},
        "directory": {"type": "string", "default": "."},
    },
    "required": ["what"],
}

import os


def files(directory):
    for path, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            yield os.path.join(path, name)


def execute(params, project_path):
    directory = os.path.join(project_path, params["directory"])
    if not os.path.isdir(directory):
        return {"success": False, "error": "not a directory: %s" % params["directory"]}
    count = 0
    for path in files(directory):
        if params["what"] == "files":
            count += 1
        else:
            with open(path, "rb") as file:
                count += sum(1 for _ in file)
    return {"count": count}
