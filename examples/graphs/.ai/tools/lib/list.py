"""Lists the files of a directory."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "lib"
__tool_description__ = "Lists the files of a directory"
__effect__ = "pure"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"directory": {"type": "string", "default": "."}},
}

import os


def execute(params, project_path):
    directory = os.path.join(project_path, params["directory"])
    names = sorted(os.listdir(directory))
    paths = [os.path.join(params["directory"], name) for name in names]
    return {"paths": [path for path in paths if os.path.isfile(os.path.join(project_path, path))]}
