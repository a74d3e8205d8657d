"""Lists a directory of the project."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = "Lists a directory of the project"
__risk_level__ = "low"
__effect__ = "pure"
__reads__ = ["path"]

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "default": ".",
            "description": "The directory, relative to the project",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5000,
            "default": 1000,
            "description": "Maximum number of entries to return",
        },
    },
    "additionalProperties": False,
}

import os

from project_files import Refusal, open_parent, resolve, shown, text, tool


def entry(found):
    if found.is_symlink():
        return {"name": text(found.name), "type": "link"}
    if found.is_dir(follow_symlinks=False):
        return {"name": text(found.name), "type": "directory"}
    if not found.is_file(follow_symlinks=False):
        return {"name": text(found.name), "type": "other"}
    size = found.stat(follow_symlinks=False).st_size
    return {"name": text(found.name), "type": "file", "size": size}


@tool
def execute(params, project):
    path = params["path"]
    real = resolve(project, path)
    if not os.path.isdir(real):
        what = "is not a directory" if os.path.exists(real) else "does not exist"
        raise Refusal("%s %s" % (path, what))
    directory = open_parent(project, os.path.join(real, "entry"), path)
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda one: one.name)
        selected = [entry(one) for one in entries[: params["limit"]]]
    finally:
        os.close(directory)
    return {
        "path": shown(project, real),
        "entries": selected,
        "total": len(entries),
        "truncated": len(selected) < len(entries),
    }
