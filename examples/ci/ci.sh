#!/bin/sh
# A step of continuous integration for code that nobody has read yet: a project is built and tested in a sandbox, without network
# and without a view of the machine's files, and what came of it is left as JUnit and SARIF.
#
#   cargo build --release && examples/ci/ci.sh                      # the project beside this script
#   examples/ci/ci.sh PROJECT REPORTS                               # yours; reports go into the directory REPORTS
#
# Ends with 0 when everything passes, 1 when something fails, and the code of the limit that stopped it (docs/exit-codes.md).
# COFFERDAM names the binary; else it is what this clone has built, else what PATH has.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
project=${1:-$here/project}
reports=${2:-$here/../../target/reports}
built=${CARGO_TARGET_DIR:-$here/../../target}/x86_64-unknown-linux-gnu/release/cofferdam
[ -x "$built" ] || built=cofferdam
cofferdam=${COFFERDAM:-$built}
if ! command -v "$cofferdam" >/dev/null; then
    echo "ci.sh: there is no cofferdam here; build it with \`cargo build --release\`, or say where it is in COFFERDAM" >&2
    exit 125
fi

mkdir -p "$reports"
# --cow: whatever the project's own code writes, the checkout stays as it was.
"$cofferdam" build "$project" --cow --sarif "$reports/build.sarif" --timeout 5m
"$cofferdam" test "$project" --cow --junit "$reports/junit.xml" --timeout 5m --memory 1g
