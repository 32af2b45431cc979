#!/bin/sh
# Finds Chromium, its driver and Xvfb (for browsers with a window), or installs Debian's packages where that is
# permitted. Without Xvfb all but evaluations on the live web works.
have() { command -v "$1" >/dev/null 2>&1; }
found() { { have chromium || have google-chrome; } && have chromedriver; }

found && have Xvfb && exit 0
as_root=
if [ "$(id -u)" != 0 ]; then
  if have sudo && sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi
fi
if have apt-get && [ "$as_root" != no ]; then
  echo "installing chromium, chromium-driver and xvfb (once)"
  log=$(mktemp)
  { $as_root apt-get update && $as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends chromium chromium-driver xvfb; } >"$log" 2>&1
  if found; then rm -f "$log"; exit 0; fi
  tail -n 3 "$log" >&2
fi
found && exit 0
echo "error: Chromium and its driver are missing: install the packages chromium and chromium-driver (Debian: apt-get install chromium chromium-driver), then run make again" >&2
exit 1
