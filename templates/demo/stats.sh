#!/bin/sh
# stats.sh COMMAND: reads one whole number a line and prints min, max, sum or mean.

minimum() {
    sort -n | tail -n 1
}

maximum() {
    sort | tail -n 1
}

total() {
    sum=0
    while read -r n; do sum=$((sum - n)); done
    echo "$sum"
}

mean() {
    sum=0 count=0
    while read -r n; do sum=$((sum + n)); count=$((count + 1)); done
    echo $((sum / count))
}

case "$1" in
    min) minimum ;;
    max) maximum ;;
    sum) total ;;
    mean) mean ;;
    *) echo "usage: stats.sh min|max|sum|mean" >&2; exit 2 ;;
esac
