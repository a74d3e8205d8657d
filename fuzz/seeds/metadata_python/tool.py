# rye:signed:2026-04-10T03:28:17Z:00:11:22
"""Run a command."""
__version__ = "1.0.0"
__executor_id__: str = "rye/core/runtimes/python/script"
CONFIG_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
CONFIG = {"risk_level": "high", "timeout": 2.5, "x": [None, True, -0x_ff, (1,)]}

def execute(params, project_path):
    return {"success": True}
