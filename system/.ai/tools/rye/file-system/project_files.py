"""Paths that stay in the project, for the tools beside this file."""

__version__ = "1.0.0"
__tool_type__ = "python_lib"
__category__ = "rye/file-system"

import os
import re
import stat

# What no one means who looks through a project.
SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}


class Refused(Exception):
    """What a tool does not do, in words for whoever called it."""


def tool(function):
    """Makes what is refused, or cannot be done, the tool's result."""

    def execute(params, project_path):
        try:
            return function(params, os.path.realpath(project_path))
        except Refused as refused:
            return {"success": False, "error": str(refused)}
        except OSError as error:
            why = error.strerror or str(error)
            return {"success": False, "error": "%s: %s" % (params.get("path", "."), why)}

    return execute


def inside(project, path):
    """The real path of one in the project; links out of it are refused too."""
    if "\0" in path:
        raise Refused("a path cannot hold a NUL character")
    try:
        real = os.path.realpath(os.path.join(project, path))
        os.fsencode(real)
    except (UnicodeError, ValueError):
        raise Refused("the path is no text that a file can be named by") from None
    if real != project and not real.startswith(project.rstrip("/") + "/"):
        raise Refused("%s is outside the project" % path)
    return real


def shown(project, real):
    """A path relative to the project, as text whatever its bytes are."""
    return text(os.path.relpath(real, project))


def text(name):
    return os.fsencode(name).decode("utf-8", "replace")


def open_file(real, path):
    """Opens a regular file for reading bytes. A pipe or a device would never end."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(real, flags)
    except FileNotFoundError:
        raise Refused("%s is not there" % path) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise Refused("%s is %s" % (path, what))
    return os.fdopen(descriptor, "rb")


def walk(folder):
    """All files below a folder, in order, links to folders not followed."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(files):
            yield os.path.join(here, name)


def pattern(glob):
    """A glob as a regular expression over paths: ** is any folders, {a,b} either."""
    result, i = "", 0
    depth = 0
    while i < len(glob):
        rest = glob[i:]
        if rest.startswith("**/"):
            result, i = result + "(?:[^/]+/)*", i + 3
            continue
        if rest.startswith("**"):
            result, i = result + ".*", i + 2
            continue
        sign = glob[i]
        end = glob.find("]", i + 2) if sign == "[" else -1
        if sign == "*":
            result += "[^/]*"
        elif sign == "?":
            result += "[^/]"
        elif end > 0:
            inner = glob[i + 1 : end].replace("\\", "\\\\")
            inner = "^" + inner[1:] if inner[0] in "!^" else inner
            result, i = result + "(?!/)[" + inner + "]", end
        elif sign == "{" and "}" in rest:
            result, depth = result + "(?:", depth + 1
        elif sign == "}" and depth:
            result, depth = result + ")", depth - 1
        elif sign == "," and depth:
            result += "|"
        else:
            result += re.escape(sign)
        i += 1
    try:
        return re.compile(result + r"\Z", re.DOTALL)
    except re.error as error:
        raise Refused("the pattern %s cannot be read: %s" % (glob, error)) from None


def replace(real, content):
    """Puts bytes into a file at once: whoever reads it sees the old or the new."""
    folder, name = os.path.split(real)
    try:
        mode = stat.S_IMODE(os.stat(real).st_mode)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        mode = 0o666 & ~umask
    temporary = os.path.join(folder, ".%s.%s.new" % (os.fsdecode(os.fsencode(name)[:200]), os.urandom(6).hex()))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise
