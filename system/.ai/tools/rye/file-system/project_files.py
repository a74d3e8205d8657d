"""Safe access to project files, shared by the tools in this directory."""

__version__ = "1.0.0"
__tool_type__ = "python_lib"
__category__ = "rye/file-system"

import json
import os
import re
import stat

# Directories that searches skip.
SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}
# The maximum number of private files that are compared with a file with several hard links.
MOST_PRIVATE_FILES = 20000


class Refusal(Exception):
    """A refused operation; the message goes to the caller."""


class Policy:
    """The path policy of the executor, which checked the paths before it started this tool."""

    def __init__(self):
        try:
            text = json.loads(os.environ["RYE_PATH_POLICY"])
            self.private, self.checked = text["private"], text["checked"]
        except (KeyError, TypeError, ValueError):
            raise Refusal("RYE_PATH_POLICY is not set: run this tool with rye execute") from None
        self.private_ids = {identity(path) for path in self.private if os.path.exists(path)}
        self.links = None

    def check(self, real, path):
        """Refuses a path in a private directory, by path or by device and inode."""
        if any(is_within(real, directory) for directory in self.private):
            raise Refusal("%s is in a private directory" % path)
        above = real
        while True:
            if os.path.lexists(above) and identity(above) in self.private_ids:
                raise Refusal("%s is in a private directory" % path)
            if above == "/":
                return
            above = os.path.dirname(above)

    def check_open(self, descriptor, path):
        """Refuses an open file or directory that is private."""
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) in self.private_ids or self.has_link(status):
            raise Refusal("%s is in a private directory" % path)

    def has_link(self, status):
        """Whether a file is a hard link to a private file."""
        if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):
            return False
        if self.links is None:
            self.links, left = set(), MOST_PRIVATE_FILES
            for directory in self.private:
                for root, _, files in os.walk(directory):
                    for name in files[:left]:
                        self.links.add(identity(os.path.join(root, name)))
                    left -= min(left, len(files))
        return (status.st_dev, status.st_ino) in self.links

    def is_private(self, directory):
        try:
            return identity(directory) in self.private_ids
        except OSError:
            return False


POLICY = None


def policy():
    global POLICY
    POLICY = POLICY or Policy()
    return POLICY


def identity(path):
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def is_within(real, directory):
    return real == directory or real.startswith(directory.rstrip("/") + "/")


def tool(function):
    """Runs a tool and returns a refusal or an OS error as its result."""

    def execute(params, project_path):
        try:
            return function(params, os.path.realpath(project_path))
        except Refusal as refused:
            return {"success": False, "error": str(refused)}
        except OSError as error:
            why = error.strerror or str(error)
            return {"success": False, "error": "%s: %s" % (params.get("path", "."), why)}

    return execute


def resolve(project, path):
    """Resolves a path in the project; links that leave the project are refused."""
    if "\0" in path:
        raise Refusal("a path cannot contain a NUL character")
    try:
        real = os.path.realpath(os.path.join(project, path))
        os.fsencode(real)
    except (UnicodeError, ValueError):
        raise Refusal("the path is not a valid file name") from None
    if not is_within(real, project):
        raise Refusal("%s is outside the project" % path)
    policy().check(real, path)
    if policy().checked.get("path", real) != real:
        raise Refusal("%s resolves to another path than when it was checked" % path)
    return real


def open_parent(project, real, path, create=False):
    """Opens the directory of a resolved path without following links."""
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
    """A path relative to the project; bytes that are not UTF-8 are escaped."""
    return text(os.path.relpath(real, project))


def text(name):
    return os.fsencode(name).decode("utf-8", "replace")


def open_file(project, real, path):
    """Opens a regular file for reading bytes. Refuses pipes and devices, which never end."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = None
    try:
        if real == project:
            raise Refusal("%s is a directory" % path)
        directory = open_parent(project, real, path)
        descriptor = os.open(os.path.basename(real), flags, dir_fd=directory)
    except FileNotFoundError:
        raise Refusal("%s does not exist" % path) from None
    finally:
        if directory is not None:
            os.close(directory)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise Refusal("%s is %s" % (path, what))
        policy().check_open(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def walk(directory):
    """All files below a directory, sorted; links to directories are not followed."""
    for root, directories, files in os.walk(directory):
        selected = (name for name in directories if name not in SKIPPED)
        selected = (name for name in selected if not policy().is_private(os.path.join(root, name)))
        directories[:] = sorted(selected)
        for name in sorted(files):
            yield os.path.join(root, name)


def pattern(glob):
    """Converts a glob to a regular expression over paths; supports ** and {a,b}."""
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
        raise Refusal("invalid pattern %s: %s" % (glob, error)) from None


def replace(project, real, path, content):
    """Replaces a file atomically: readers see the old or the new content."""
    name = os.path.basename(real)
    directory = open_parent(project, real, path, create=True)
    try:
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise Refusal("%s exists and is not a regular file" % path)
            if policy().has_link(status):
                raise Refusal("%s is in a private directory" % path)
            mode = stat.S_IMODE(status.st_mode)
        except FileNotFoundError:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        short = os.fsdecode(os.fsencode(name)[:200])
        temporary = ".%s.%s.new" % (short, os.urandom(6).hex())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
    finally:
        os.close(directory)
