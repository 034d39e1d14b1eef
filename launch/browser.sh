#!/usr/bin/env bash
# Chromium and its driver, for the tests of reports: installed with apt-get where they are missing
# and that is possible. Never fails: without them those tests are skipped.
set -uo pipefail

skip() {
  echo "$1: tests of reports in a browser are skipped." >&2
  exit 0
}

if command -v chromedriver >/dev/null; then
  exit 0
fi
command -v apt-get >/dev/null || skip "There is no chromedriver and no apt-get to install it"
as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || skip "There is no chromedriver and no right to install it"
  as_root=(sudo -n "${as_root[@]}")
fi
echo "Installing chromium and chromium-driver (once, a minute) ..." >&2
log=$(mktemp)
apt() {
  timeout 300 "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=60 "$@" >>"$log" 2>&1 </dev/null
}
apt update
apt install -y --no-install-recommends chromium chromium-driver ||
  skip "chromium-driver could not be installed (log: $log)"
rm -f "$log"
