#!/usr/bin/env bash
# Installs what Lagoon needs from the distribution's packages (the table is scripts/packages.txt).
# Does nothing, quickly, where all of it is there.
#
# usage: deps.sh [build] [test] [lint] [fuzz]      (default: build)
# exit codes: 0 all is there, 1 installing failed, 2 wrong usage, 3 a distribution it does not know
set -euo pipefail
cd "$(dirname "$0")"

say() { echo "deps.sh: $*"; }
fail() {
  echo "deps.sh: $*" >&2
  exit 1
}

groups=("$@")
((${#groups[@]} > 0)) || groups=(build)
for group in "${groups[@]}"; do
  case $group in
    build | test | lint | fuzz) ;;
    *)
      echo "usage: deps.sh [build] [test] [lint] [fuzz]" >&2
      exit 2
      ;;
  esac
done

# "name version" as in /etc/os-release, and the column of the table that goes with it.
distribution=unknown
if [[ -r /etc/os-release ]]; then
  # shellcheck source=/dev/null
  distribution=$(. /etc/os-release && echo "${ID:-unknown} ${VERSION_ID:-}")
fi
case $distribution in
  "debian 12") column=2 ;;
  "ubuntu 24.04") column=3 ;;
  *) column=0 ;;
esac

# The rows of the groups asked for: "package program".
wanted() {
  local group debian ubuntu program
  while read -r group debian ubuntu program; do
    [[ $group == \#* || -z $group || " ${groups[*]} " != *" $group "* ]] && continue
    if ((column == 3)); then echo "$ubuntu ${program:--}"; else echo "$debian ${program:--}"; fi
  done <packages.txt
}

if ((column == 0)); then
  echo "deps.sh: this is '$distribution'; only Debian 12 and Ubuntu 24.04 are known." \
    "Please install what these packages of Debian 12 hold (Boost 1.81, GCC 12 and CMake 3.25 or" \
    "newer): $(wanted | cut -d' ' -f1 | sort -u | tr '\n' ' ')" >&2
  exit 3
fi

# has_program NAME[=VERSION]: is it on the PATH, and new enough?
has_program() {
  local name=${1%%=*} least=""
  [[ $1 == *=* ]] && least=${1#*=}
  command -v "$name" >/dev/null || return 1
  [[ -z $least ]] && return 0
  local version
  version=$("$name" --version 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)*' | head -1) || return 1
  [[ $(printf '%s\n%s\n' "$least" "$version" | sort -V | head -1) == "$least" ]]
}

is_installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

missing=()
while read -r package program; do
  [[ $program != - ]] && has_program "$program" && continue
  is_installed "$package" && continue
  [[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
done < <(wanted)

if ((${#missing[@]} == 0)); then
  say "all packages for '${groups[*]}' are installed"
  exit 0
fi

((column == 3)) && say "the package names for Ubuntu 24.04 are untested"
as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    fail "needs root to install packages, and there is no sudo: run as root: apt-get install" \
      "--no-install-recommends ${missing[*]}"
  as_root=(sudo)
fi
say "installing, with ${as_root[*]:+${as_root[*]} }apt-get: ${missing[*]}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1
}
apt update || {
  cat "$log" >&2
  fail "apt-get update failed (see above): is there a network?"
}
# --no-remove: another package of yours that is in the way is yours to remove.
apt install --yes --no-install-recommends --no-remove "${missing[@]}" || {
  cat "$log" >&2
  fail "apt-get install failed (see above). Where a package 'needs to be removed', such as" \
    "libboost-dev of another version: apt-get install ${missing[*]} shows what would go."
}
say "installed"
