# Sources a shell file, calls its function `handler` and writes one JSON document to the result descriptor.
#
#     sh .cofferdam/shim.sh SHELL MODE MAIN [ARGUMENT...]      MODE is `handler` (there must be one) or `auto` (there may be one)
#
# User code runs in a shell of its own without the descriptor. Its handler writes JSON to the file named by $COFFERDAM_RESULT: a file,
# because any program that a handler starts can write one, the last writer wins, and its size is known before anything is sent.
# Every process that is started here costs more than all of this text, so there are few.

max_bytes=8388608
fd=${COFFERDAM_RESULT_FD-}
unset COFFERDAM_RESULT_FD
here=${0%/*} shell=$1 mode=$2 main=$3
shift 3
dir=$here
[ -w "$dir" ] || dir=$(mktemp -d) || exit 1
result=$dir/result

finish() {
    [ "$dir" = "$here" ] || rm -rf "$dir"
    exit "$1"
}

# $1 the type, $2 the message; neither needs escaping.
fail() {
    echo "cofferdam: $2" >&2
    printf '{"ok":false,"error":{"type":"%s","message":"%s","traceback":""}}' "$1" "$2" >&"$fd"
}

case $fd in
    [3-9]) ;;
    *) echo "cofferdam: the handler cannot be called: no result descriptor" >&2; finish 1 ;;
esac
# Of an earlier run in the same workspace.
[ ! -e "$result" ] || rm -rf "$result"

# The program of the inner shell. No file is the event without anything in it. A function is what `command -v` names without a path. That the result's file exists says that the
# handler was called.
inner='
__cofferdam_event="{}"
if [ -e "$1" ]; then
    __cofferdam_event=$(cat "$1") || exit 1
    rm -f "$1" 2>/dev/null
fi
COFFERDAM_RESULT=$2
shift 2
case $0 in */*) . "$0" ;; *) . "./$0" ;; esac
__cofferdam_status=$?
if [ "$(command -v handler)" = handler ]; then
    : >"$COFFERDAM_RESULT"
    export COFFERDAM_RESULT
    handler "$__cofferdam_event" <<__COFFERDAM_EVENT
$__cofferdam_event
__COFFERDAM_EVENT
else
    (exit "$__cofferdam_status")
fi'
eval '"$shell" -c "$inner" "$main" "$here/event.json" "$result" "$@" '"$fd>&-"
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
if [ ! -f "$result" ] || [ ! -r "$result" ]; then
    fail UnserializableResult "the file of the result was replaced by something else"
    finish 1
fi
# Counted in bytes, not characters. A shell drops NUL in silence; as another control character it is an error in JSON.
LC_ALL=C
value=$(head -c "$max_bytes" "$result" | tr '\0' '\1')
if [ "${#value}" -gt $((max_bytes - 32)) ]; then
    fail UnserializableResult "the value is longer than $max_bytes bytes of JSON; write it to a file"
    finish 1
fi
printf '{"ok":true,"value":%s}' "${value:-null}" >&"$fd"
finish 0
