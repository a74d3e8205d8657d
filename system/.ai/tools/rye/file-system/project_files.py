"""Paths that stay in the project, for the tools beside this file."""

__version__ = "1.0.0"
__tool_type__ = "python_lib"
__category__ = "rye/file-system"

import json
import os
import re
import stat

# What no one means who looks through a project.
SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}
# How many private files are compared with one that has several names.
MOST_PRIVATE_FILES = 20000


class Refused(Exception):
    """What a tool does not do, in words for whoever called it."""


class Policy:
    """What the executor says of paths: it checked them before it started this program."""

    def __init__(self):
        try:
            text = json.loads(os.environ["RYE_PATH_POLICY"])
            self.private, self.checked = text["private"], text["checked"]
        except (KeyError, TypeError, ValueError):
            raise Refused("RYE_PATH_POLICY is not set: run this tool with rye execute") from None
        self.folders = {identity(path) for path in self.private if os.path.exists(path)}
        self.links = None

    def check(self, real, path):
        """Refuses what is in a private directory, by its name or as the same directory."""
        if any(is_within(real, folder) for folder in self.private):
            raise Refused("%s is in a private directory" % path)
        above = real
        while True:
            if os.path.lexists(above) and identity(above) in self.folders:
                raise Refused("%s is in a private directory" % path)
            if above == "/":
                return
            above = os.path.dirname(above)

    def check_open(self, descriptor, path):
        """Refuses an open file or directory that is a private one."""
        about = os.fstat(descriptor)
        if (about.st_dev, about.st_ino) in self.folders or self.has_link(about):
            raise Refused("%s is in a private directory" % path)

    def has_link(self, about):
        """Whether a file is another name of a private one."""
        if about.st_nlink < 2 or not stat.S_ISREG(about.st_mode):
            return False
        if self.links is None:
            self.links, left = set(), MOST_PRIVATE_FILES
            for folder in self.private:
                for here, _, files in os.walk(folder):
                    for name in files[:left]:
                        self.links.add(identity(os.path.join(here, name)))
                    left -= min(left, len(files))
        return (about.st_dev, about.st_ino) in self.links

    def is_private(self, folder):
        try:
            return identity(folder) in self.folders
        except OSError:
            return False


POLICY = None


def policy():
    global POLICY
    POLICY = POLICY or Policy()
    return POLICY


def identity(path):
    about = os.lstat(path)
    return about.st_dev, about.st_ino


def is_within(real, folder):
    return real == folder or real.startswith(folder.rstrip("/") + "/")


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
    if not is_within(real, project):
        raise Refused("%s is outside the project" % path)
    policy().check(real, path)
    if policy().checked.get("path", real) != real:
        raise Refused("%s leads to another place than when it was checked" % path)
    return real


def folder_of(project, real, path, create=False):
    """Opens the directory of a real path, and follows no link on the way to it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(project, flags)
    try:
        below = os.path.relpath(os.path.dirname(real), project)
        for name in [] if real == project or below == "." else below.split("/"):
            if create:
                try:
                    os.mkdir(name, dir_fd=descriptor)
                except FileExistsError:
                    pass
            following = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = following
            policy().check_open(descriptor, path)
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def shown(project, real):
    """A path relative to the project, as text whatever its bytes are."""
    return text(os.path.relpath(real, project))


def text(name):
    return os.fsencode(name).decode("utf-8", "replace")


def open_file(project, real, path):
    """Opens a regular file for reading bytes. A pipe or a device would never end."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = None
    try:
        if real == project:
            raise Refused("%s is a folder" % path)
        folder = folder_of(project, real, path)
        descriptor = os.open(os.path.basename(real), flags, dir_fd=folder)
    except FileNotFoundError:
        raise Refused("%s is not there" % path) from None
    finally:
        if folder is not None:
            os.close(folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise Refused("%s is %s" % (path, what))
        policy().check_open(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def walk(folder):
    """All files below a folder, in order, links to folders not followed."""
    for here, folders, files in os.walk(folder):
        kept = (name for name in folders if name not in SKIPPED)
        kept = (name for name in kept if not policy().is_private(os.path.join(here, name)))
        folders[:] = sorted(kept)
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


def replace(project, real, path, content):
    """Puts bytes into a file at once: whoever reads it sees the old or the new."""
    name = os.path.basename(real)
    folder = folder_of(project, real, path, create=True)
    try:
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(about.st_mode):
                raise Refused("%s is there and is no file" % path)
            if policy().has_link(about):
                raise Refused("%s is in a private directory" % path)
            mode = stat.S_IMODE(about.st_mode)
        except FileNotFoundError:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        short = os.fsdecode(os.fsencode(name)[:200])
        temporary = ".%s.%s.new" % (short, os.urandom(6).hex())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
    finally:
        os.close(folder)
