#!/usr/bin/env bash
# Succeeds if `rye serve` is ready. The image has no other HTTP client.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/${1:-7933}"
printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ]
