"""Replaces an exact text in a file of the project."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = "Replaces an exact text in a file of the project"
__risk_level__ = "medium"
__effect__ = "at_most_once"
__writes__ = ["path"]

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "description": "The file, relative to the project",
        },
        "old": {
            "type": "string",
            "minLength": 1,
            "description": "The exact text to replace, including spaces and line endings; must occur once",
        },
        "new": {"type": "string", "description": "The replacement"},
        "replace_all": {
            "type": "boolean",
            "default": False,
            "description": "Replace all occurrences",
        },
    },
    "required": ["path", "old", "new"],
    "additionalProperties": False,
}

import os

from project_files import Refusal, resolve, open_file, replace, shown, tool

MAX_FILE_BYTES = 64 * 1024 * 1024


@tool
def execute(params, project):
    path = params["path"]
    real = resolve(project, path)
    try:
        old, new = params["old"].encode("utf-8"), params["new"].encode("utf-8")
    except UnicodeEncodeError:
        raise Refusal("a text contains half of a surrogate pair") from None
    if old == new:
        raise Refusal("old and new are the same")
    with open_file(project, real, path) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise Refusal("%s is larger than %d MiB" % (path, MAX_FILE_BYTES >> 20))
        content = file.read()
    count = content.count(old)
    if count == 0:
        raise Refusal("the text does not occur in %s; read the file again, white space counts" % path)
    if count > 1 and not params["replace_all"]:
        raise Refusal(
            "the text occurs %d times in %s, first in the lines %s; include more "
            "surrounding text, or set replace_all" % (count, path, where(content, old))
        )
    replace(project, real, path, content.replace(old, new))
    return {"path": shown(project, real), "replaced": count}


def where(content, old):
    numbers, at = [], -1
    while len(numbers) < 5:
        at = content.find(old, at + 1)
        if at < 0:
            break
        numbers.append(str(content.count(b"\n", 0, at) + 1))
    return ", ".join(numbers)
