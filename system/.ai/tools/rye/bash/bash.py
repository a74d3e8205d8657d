"""Runs a command with bash in the project."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/bash"
__tool_description__ = "Runs a command with bash in the project"
__risk_level__ = "high"
__effect__ = "at_most_once"
__reads__ = ["cwd"]

# The parameter limits the command; this timeout leaves time for cleaning up.
__timeout__ = 3630
__requires_approval__ = True
__sandbox__ = "confined"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "description": "The command to run",
            "x-code": True,
        },
        "args": {
            "type": "array",
            "items": {"type": "string"},
            "default": [],
            "description": "Arguments of the command, available as \"$1\", \"$2\" and so on",
        },
        "cwd": {
            "type": "string",
            "default": ".",
            "description": "The working directory, relative to the project",
        },
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 3600,
            "default": 120,
            "description": "Timeout in seconds; then the command and its child processes are ended",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}

import os
import signal
import subprocess
import tempfile

# Limit for the beginning and the end of each stream; leaves room for JSON escapes.
MAX_BYTES = 64 * 1024
GRACE = 2


def environment():
    """The environment of the call, without variables that the runtime added for this tool."""
    own = {"RYE_PATH_POLICY", "RYE_PYTHON", "PROJECT_VENV_PYTHON", "PYTHONUNBUFFERED", "PYTHONPYCACHEPREFIX"}
    env = {name: value for name, value in os.environ.items() if name not in own}
    paths = env.pop("PYTHONPATH", "").split(os.pathsep)
    paths = [path for path in paths if path and not path.endswith("/.ai/tools/rye/bash")]
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(paths)
    return env


def truncate(file):
    """The output without its middle if it is long, and whether it was truncated."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= 2 * MAX_BYTES:
        return file.read().decode("utf-8", "replace"), False
    first = file.read(MAX_BYTES).decode("utf-8", "replace")
    file.seek(size - MAX_BYTES)
    last = file.read().decode("utf-8", "replace")
    omitted = size - 2 * MAX_BYTES
    return "%s\n[… %d bytes omitted …]\n%s" % (first, omitted, last), True


def end(process):
    """Ends a command and its child processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(GRACE)
            return
        except subprocess.TimeoutExpired:
            continue


def execute(params, project_path):
    project = os.path.realpath(project_path)
    cwd = os.path.realpath(os.path.join(project, params["cwd"].replace("\0", "")))
    if cwd != project and not cwd.startswith(project.rstrip("/") + "/"):
        return {"success": False, "error": "%s is outside the project" % params["cwd"]}
    if not os.path.isdir(cwd):
        return {"success": False, "error": "%s is not a directory" % params["cwd"]}
    words = [params["command"], "bash", *params["args"]]
    if any("\0" in word for word in words):
        return {"success": False, "error": "a command cannot contain a NUL character"}
    # Files instead of pipes, so that background processes of the command do not block the call.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            ["/bin/bash", "-c", *(word.encode("utf-8", "replace") for word in words)],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(params["timeout"])
        except subprocess.TimeoutExpired:
            timed_out = True
            end(process)
        stdout, out_cut = truncate(out)
        stderr, err_cut = truncate(err)
    code = process.returncode
    result = {"success": code == 0 and not timed_out, "stdout": stdout, "stderr": stderr}
    result["exit_code"] = code
    if timed_out:
        result["error"] = "timed out after %g s" % params["timeout"]
    elif code < 0:
        result["error"] = "ended by signal %d" % -code
    elif code:
        result["error"] = "ended with exit code %d" % code
    if out_cut or err_cut:
        result["truncated"] = True
    return result
