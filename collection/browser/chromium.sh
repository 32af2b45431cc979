#!/bin/sh
# Starts the browser $RMSWEB_CHROMIUM, which is killed when its driver dies.
# Chromium ends with its driver's pipe by itself, but not if it also has a port for DevTools (seen at 156).
exec setpriv --pdeathsig KILL "$RMSWEB_CHROMIUM" "$@"
