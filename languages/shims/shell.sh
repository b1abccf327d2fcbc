# Sources a shell file, calls its function `handler` and writes one JSON document to the result descriptor.
#
#     sh .cofferdam/shim.sh SHELL MODE MAIN [ARGUMENT...]      MODE is `handler` (there must be one) or `auto` (there may be one)
#
# User code runs in a shell of its own without the descriptor. Its handler writes JSON to the file named by $COFFERDAM_RESULT: a file,
# because any program that a handler starts can write one, the last writer wins, and its size is known before anything is sent.

max_bytes=8388608
fd=${COFFERDAM_RESULT_FD-}
unset COFFERDAM_RESULT_FD
shell=$1 mode=$2
shift 2
event=${0%/*}/event.json
dir=$(mktemp -d) || exit 1
result=$dir/result

finish() {
    rm -rf "$dir"
    exit "$1"
}

case $fd in
    [3-9]) ;;
    *) echo "cofferdam: the handler cannot be called: no result descriptor" >&2; finish 1 ;;
esac

# $1 the type, $2 the message; neither needs escaping.
fail() {
    echo "cofferdam: $2" >&2
    printf '{"ok":false,"error":{"type":"%s","message":"%s","traceback":""}}' "$1" "$2" >&"$fd"
}

# The event is gone from the workspace before user code runs.
cat "$event" >"$dir/event" || finish 1
rm -f "$event" 2>/dev/null

# The program of the inner shell. A function is what `command -v` names without a path.
inner='
__cofferdam_dir=$1
shift
__cofferdam_event=$(cat "$__cofferdam_dir/event")
COFFERDAM_RESULT=$__cofferdam_dir/result
case $0 in */*) . "$0" ;; *) . "./$0" ;; esac
__cofferdam_status=$?
if [ "$(command -v handler)" = handler ]; then
    : >"$COFFERDAM_RESULT"
    export COFFERDAM_RESULT
    handler "$__cofferdam_event" <"$__cofferdam_dir/event"
else
    (exit "$__cofferdam_status")
fi'
main=$1
shift
run_inner() {
    "$shell" -c "$inner" "$main" "$dir" "$@"
}
eval 'run_inner "$@" '"$fd>&-"
status=$?

if [ ! -e "$result" ]; then
    if [ "$mode" = auto ]; then
        finish "$status"
    elif [ "$status" -ne 0 ]; then
        fail ScriptFailed "the script ended with status $status before its handler was called"
        finish "$status"
    fi
    fail MissingHandler "the script defines no function handler; define handler() { ...; }"
    finish 1
elif [ "$status" -ne 0 ]; then
    fail HandlerFailed "the handler ended with status $status"
    finish "$status"
fi
size=$(wc -c <"$result") || finish 1
if [ "$size" -gt $((max_bytes - 32)) ]; then
    fail UnserializableResult "the value is $size bytes of JSON, at most $max_bytes; write it to a file"
    finish 1
elif [ "$size" -eq 0 ]; then
    printf '{"ok":true,"value":null}' >&"$fd"
else
    { printf '{"ok":true,"value":' && cat "$result" && printf '}'; } >&"$fd"
fi
finish 0
