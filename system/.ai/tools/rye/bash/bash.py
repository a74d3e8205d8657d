"""Runs a command with bash in the project."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/bash"
__tool_description__ = "Runs a command with bash in the project"
__risk_level__ = "high"
__effect__ = "at_most_once"
__reads__ = ["cwd"]

# The call's own time is the parameter's; this one is for what it leaves behind.
__timeout__ = 3630
__requires_approval__ = True

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "description": "What bash runs",
            "x-code": True,
        },
        "args": {
            "type": "array",
            "items": {"type": "string"},
            "default": [],
            "description": "Values for the command, which it has as \"$1\", \"$2\" and so on",
        },
        "cwd": {
            "type": "string",
            "default": ".",
            "description": "The folder to run it in, relative to the project",
        },
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 3600,
            "default": 120,
            "description": "Seconds after which it is ended, with all that it started",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}

import os
import signal
import subprocess
import tempfile

# Of each stream: the beginning and the end, with room for their quoting.
MOST_BYTES = 64 * 1024
GRACE = 2


def environment():
    """What the call has, without what the runtime of this tool put in for itself."""
    own = {"RYE_PATH_POLICY", "RYE_PYTHON", "PROJECT_VENV_PYTHON", "PYTHONUNBUFFERED", "PYTHONPYCACHEPREFIX"}
    env = {name: value for name, value in os.environ.items() if name not in own}
    paths = env.pop("PYTHONPATH", "").split(os.pathsep)
    paths = [path for path in paths if path and not path.endswith("/.ai/tools/rye/bash")]
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(paths)
    return env


def kept(file):
    """What was written, without its middle if it is long, and whether it was."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= 2 * MOST_BYTES:
        return file.read().decode("utf-8", "replace"), False
    first = file.read(MOST_BYTES).decode("utf-8", "replace")
    file.seek(size - MOST_BYTES)
    last = file.read().decode("utf-8", "replace")
    left_out = size - 2 * MOST_BYTES
    return "%s\n[… %d bytes left out …]\n%s" % (first, left_out, last), True


def end(process):
    """Ends a command and what it started."""
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
        return {"success": False, "error": "%s is no folder" % params["cwd"]}
    words = [params["command"], "bash", *params["args"]]
    if any("\0" in word for word in words):
        return {"success": False, "error": "a command cannot hold a NUL character"}
    # Files rather than pipes: nothing waits for what the command leaves running.
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
        is_late = False
        try:
            process.wait(params["timeout"])
        except subprocess.TimeoutExpired:
            is_late = True
            end(process)
        stdout, out_cut = kept(out)
        stderr, err_cut = kept(err)
    code = process.returncode
    result = {"success": code == 0 and not is_late, "stdout": stdout, "stderr": stderr}
    result["exit_code"] = code
    if is_late:
        result["error"] = "it was ended after %g s: its time was up" % params["timeout"]
    elif code < 0:
        result["error"] = "it was ended by signal %d" % -code
    elif code:
        result["error"] = "it ended with exit code %d" % code
    if out_cut or err_cut:
        result["truncated"] = True
    return result
