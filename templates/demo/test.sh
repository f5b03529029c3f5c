#!/bin/sh
# Tests of stats.sh, in TAP. Exits 1 when one fails.

cd "$(dirname "$0")" || exit 2
number=0 failed=0

expect() { # name, expected, command, numbers…
    name=$1 expected=$2 command=$3
    shift 3
    number=$((number + 1))
    found=$(printf '%s\n' "$@" | ./stats.sh "$command" 2>&1)
    if [ "$found" = "$expected" ]; then
        echo "ok $number - $name"
    else
        failed=$((failed + 1))
        echo "not ok $number - $name"
        echo "# expected $expected, found $found"
    fi
}

echo "1..6"
expect "the smallest number" 2 min 5 2 9
expect "the largest number" 9 max 5 2 9
expect "the largest of two digits" 10 max 9 10 2
expect "the sum" 16 sum 5 2 9
expect "the sum with a negative number" 4 sum 5 -1
expect "the mean" 4 mean 2 4 6
[ "$failed" -eq 0 ]
