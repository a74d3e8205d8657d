"""A first tool, to read and change."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "examples"
__tool_description__ = "Says hello to a person"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "description": "Name to greet",
            "default": "world",
        },
    },
    "additionalProperties": False,
}


def execute(params, project_path):
    return {"greeting": f"Hello, {params['name']}!"}
