"""Finds lines in files of the project by a regular expression."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = "Finds lines in files of the project by a regular expression"
__risk_level__ = "low"
__effect__ = "pure"
__reads__ = ["path"]

__timeout__ = 60

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "minLength": 1,
            "description": "A regular expression in Python syntax",
        },
        "path": {
            "type": "string",
            "default": ".",
            "description": "The file or directory to search, relative to the project",
        },
        "include": {
            "type": "string",
            "description": "Only files that match this glob: *.py matches names, src/**/*.py matches paths",
        },
        "ignore_case": {
            "type": "boolean",
            "default": False,
            "description": "Ignore case",
        },
        "context": {
            "type": "integer",
            "minimum": 0,
            "maximum": 20,
            "default": 0,
            "description": "Number of context lines before and after each match",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 1000,
            "default": 100,
            "description": "Maximum number of matching lines",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}

import os
import re
import stat

from project_files import Refusal, resolve, open_file, pattern, shown, tool, walk

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 500
# The maximum size of a result; leaves room for JSON escapes.
MAX_CHARACTERS = 200 * 1024


def text_lines(project, real, path):
    """The lines of a file; none if it is binary or too large."""
    with open_file(project, real, path) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            return None
        content = file.read()
    return None if b"\0" in content[:8192] else content.decode("utf-8", "replace").split("\n")


def brief(line):
    line = line.rstrip("\r")
    return line if len(line) <= MAX_LINE_BYTES else line[:MAX_LINE_BYTES] + "…"


@tool
def execute(params, project):
    start = resolve(project, params["path"])
    if not os.path.exists(start):
        raise Refusal("%s does not exist" % params["path"])
    try:
        wanted = re.compile(params["pattern"], re.IGNORECASE if params["ignore_case"] else 0)
    except re.error as error:
        raise Refusal("invalid pattern: %s" % error) from None
    include = params.get("include")
    by_name = include is not None and "/" not in include
    include = None if include is None else pattern(include)
    files = [start] if os.path.isfile(start) else walk(start)
    matches, skipped, searched, size = [], [], 0, 0
    for real in files:
        name = os.path.basename(real) if by_name else os.path.relpath(real, start)
        if include is not None and not include.match(name):
            continue
        # A link may point outside the project, and a pipe never ends.
        if not stat.S_ISREG(os.lstat(real).st_mode):
            continue
        path = shown(project, real)
        try:
            lines = text_lines(project, real, path)
        except (Refusal, OSError):
            lines = None
        if lines is None:
            skipped.append(path)
            continue
        searched += 1
        for index, line in enumerate(lines):
            if not wanted.search(line):
                continue
            if len(matches) == params["limit"] or size > MAX_CHARACTERS:
                return result(matches, searched, skipped, True)
            match = {"path": path, "line": index + 1, "text": brief(line)}
            around = params["context"]
            if around:
                match["before"] = [brief(one) for one in lines[max(0, index - around) : index]]
                match["after"] = [brief(one) for one in lines[index + 1 : index + 1 + around]]
            size += sum(len(one) for one in [line[:MAX_LINE_BYTES]] + match.get("before", []) + match.get("after", []))
            matches.append(match)
    return result(matches, searched, skipped, False)


def result(matches, searched, skipped, is_cut):
    return {
        "matches": matches,
        "files_searched": searched,
        "skipped": skipped[:20],
        "truncated": is_cut,
    }
