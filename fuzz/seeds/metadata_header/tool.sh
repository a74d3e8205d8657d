#!/bin/bash
# rye:signed:x
# version: 1.0.0
# tags: [a, "b c"]
# config_schema:
#   type: object
#   properties: {a: {type: string}}
# requires_env:
# - TOKEN
// timeout: 5
__version__ = "1.0.0" # x
__timeout__=30
