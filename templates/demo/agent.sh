#!/bin/sh
# The demo's coding agent: a script that makes real edits, as agents do: one makes things worse, then it does not see what
# is wrong and tries fixes that do not help, until a person gives the cause.
# Called in the work tree with the prompt on standard input; $1 is how long it thinks, in seconds.

prompt=$(cat)
sleep "${1:-0}"

report() { # percent, done, approach, summary, learning
    printf '{"completion_percentage": %s, "completion_signal": %s, "approach": "%s", "summary": "%s", "learnings": ["%s"]}\n' \
        "$1" "$2" "$3" "$4" "$5" >"$RALPH_REPORT"
}

replace() { # sed expression
    sed "$1" stats.sh >stats.new && cat stats.new >stats.sh && rm stats.new
}

case "$RALPH_ITERATION" in
    1)
        echo "The minimum takes the last line of the sorted numbers; it has to be the first."
        replace 's/^    sort -n | tail -n 1$/    sort -n | head -n 1/'
        report 50 false "smallest first" "The minimum takes the first line of the sorted numbers." "min and max share their sort"
        ;;
    2)
        echo "The sum subtracts. I will rewrite it with awk, and use that for the mean as well."
        replace 's/sum=$((sum - n))/sum=$((sum + n + 1))/'
        replace 's|echo $((sum / count))|echo $((sum / (count + 1)))|'
        report 100 true "rewrite the arithmetic" "Sum and mean are rewritten; everything should pass now." "the mean counts its lines"
        ;;
    3)
        echo "That made it worse: the mean is broken and the sum is still wrong. Undoing, then fixing the sum alone."
        replace 's|echo $((sum / (count + 1)))|echo $((sum / count))|'
        replace 's/sum=$((sum + n + 1))/sum=$((sum + n))/'
        report 80 false "one fix at a time" "The mean is as it was, the sum adds." "changing two functions at once hid the mistake"
        ;;
    *)
        case "$prompt" in
            *"sort by number"*)
                echo "So that is it: sort compares text unless told otherwise, and 9 comes after 10."
                replace 's/^    sort .*| tail -n 1$/    sort -n | tail -n 1/'
                report 100 true "sort by number" "The maximum sorts by number, as the maintainer said." "sort compares text"
                ;;
            *OVERRIDE:* | *WARNING:*)
                echo "Something else, then: an option of sort that makes it look at the digits only."
                flag=$(printf 'fdbis' | cut -c "$((RALPH_ITERATION % 5 + 1))")
                replace "s/^    sort .*| tail -n 1\$/    sort -$flag | tail -n 1/"
                replace "s/^    sort | tail -n 1\$/    sort -$flag | tail -n 1/"
                report 90 true "an option of sort" "The maximum sorts with -$flag." "sort has many options"
                ;;
            *)
                echo "The maximum looks right to me: it sorts and takes the last line."
                report 90 true "read it again" "Nothing to change; the maximum takes the last line of the sorted numbers." "the test may be flaky"
                ;;
        esac
        ;;
esac
