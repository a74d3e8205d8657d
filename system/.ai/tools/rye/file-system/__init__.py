"""Tools for the files of a project."""

__version__ = "1.0.0"
__tool_type__ = "python_lib"
__category__ = "rye/file-system"
