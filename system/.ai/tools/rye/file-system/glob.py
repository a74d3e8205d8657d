"""Finds files of the project by a pattern of their paths."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = "Finds files of the project by a pattern of their paths"
__risk_level__ = "low"
__effect__ = "pure"
__reads__ = ["path"]

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "minLength": 1,
            "description": "Such as **/*.py or src/*.{ts,tsx}: * is within a folder, ** any folders",
        },
        "path": {
            "type": "string",
            "default": ".",
            "description": "The folder to look in, relative to the project",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5000,
            "default": 1000,
            "description": "How many files to give at most",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}

import os

from project_files import Refused, inside, pattern, shown, tool, walk


@tool
def execute(params, project):
    folder = inside(project, params["path"])
    if not os.path.isdir(folder):
        raise Refused("%s is no folder" % params["path"])
    wanted, files, is_cut = pattern(params["pattern"]), [], False
    for real in walk(folder):
        if wanted.match(os.path.relpath(real, folder)):
            if len(files) == params["limit"]:
                is_cut = True
                break
            files.append(shown(project, real))
    return {"files": files, "truncated": is_cut}
