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
            "description": "A glob such as **/*.py or src/*.{ts,tsx}; * matches within a directory, ** across directories",
        },
        "path": {
            "type": "string",
            "default": ".",
            "description": "The directory to search, relative to the project",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5000,
            "default": 1000,
            "description": "Maximum number of files to return",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}

import os

from project_files import Refusal, resolve, pattern, shown, tool, walk


@tool
def execute(params, project):
    directory = resolve(project, params["path"])
    if not os.path.isdir(directory):
        raise Refusal("%s is not a directory" % params["path"])
    wanted, files, is_cut = pattern(params["pattern"]), [], False
    for real in walk(directory):
        if wanted.match(os.path.relpath(real, directory)):
            if len(files) == params["limit"]:
                is_cut = True
                break
            files.append(shown(project, real))
    return {"files": files, "truncated": is_cut}
