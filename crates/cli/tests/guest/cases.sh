# Runs in the guest, as its process 1: one case after the other, each told on the second serial line as guest.rs reads it. Judges nothing itself.
export PATH=/usr/bin HOME=/ COFFERDAM_HISTORY=off
/usr/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=1777 tmp /tmp
stty -F /dev/ttyS1 raw -echo
exec 3>/dev/ttyS1
for module in /modules/*.ko; do insmod "$module"; done
ip link set lo up
groups=/sys/fs/cgroup
cat /proc/mounts >/mounts

# Everything of ours that is still there: groups, and processes other than this one.
left() {
    find $groups -type d -name 'cofferdam-*'
    for stat in /proc/[0-9]*/stat; do
        read -r pid comm rest <"$stat" || continue
        case $comm in "(cofferdam"* | "(actor"*) echo "$pid $comm" ;; esac
    done 2>/dev/null
}

tell() { # NAME RC: what /tmp/out and /tmp/err hold
    {
        echo "case $1"
        sed 's/^/out /' /tmp/out
        sed 's/^/err /' /tmp/err
        left | sed 's/^/left /'
        echo "rc $2"
    } >&3
}

try() { # NAME CMD...
    name=$1
    shift
    "$@" >/tmp/out 2>/tmp/err </dev/null
    tell "$name" $?
}

# Ends the calling shell: use it in a subshell or in the background.
enter() { # GROUP CMD...
    echo 0 >"$1/cgroup.procs"
    shift
    exec "$@"
}

try_in() { # NAME GROUP CMD...
    name=$1
    shift
    (enter "$@") >/tmp/out 2>/tmp/err </dev/null
    tell "$name" $?
}

await() { # CONDITION...: for ten seconds at most
    turns=0
    until "$@"; do
        turns=$((turns + 1))
        [ $turns -lt 500 ] || return 1
        usleep 20000
    done
}
runs_a_sleeper() { cat $1/cofferdam-*/cgroup.procs 2>/dev/null | while read -r pid; do cat "/proc/$pid/comm"; done 2>/dev/null | grep -q sleep; }
nothing_left() { [ -z "$(left)" ]; }

kill_supervisor() { # NAME PARENT CMD...: the whole command line, killed once its program runs in a group in PARENT
    name=$1 parent=$2
    shift 2
    "$@" >/tmp/out 2>/tmp/err </dev/null &
    supervisor=$!
    await runs_a_sleeper "$parent" && echo "it ran" >>/tmp/out
    kill -9 $supervisor
    wait $supervisor 2>/dev/null
    rc=$?
    await nothing_left
    tell "$name" $rc
}

run="cofferdam run --json"
user="actor as 1000"

try facts uname -r

# Root in the root group, as in a minimal container host.
try plain $run --cpus 2 -- sh -c 'echo hello; id -u; cat /proc/self/cgroup'
try memory_hog $run --memory 32m -- actor memory 128
try memory_hog_in_child $run --memory 32m -- actor memory-in-child 128
try memory_in_scratch_files $run --memory 32m -- dd if=/dev/zero of=/tmp/file bs=1M count=96
try memory_enough $run --memory 64m -- actor memory 24
try fork_bomb $run --pids 16 -- actor bomb
try forks_enough $run --pids 16 -- actor forks 12
try forks_not_at_all $run --pids 1 -- actor forks 0
try forks_to_the_limit $run --pids 16 -- actor forks 15
try cpu_burners $run --cpu-time 500ms --timeout 60s -- actor burn 3 0
try cpu_enough $run --cpu-time 20s -- actor burn 2 200
try cpu_quota $run --cpus 0.5 -- actor burn 1 500
try wall_time $run --timeout 500ms -- sleep 1000
try output_flood $run --output-limit 64k -- yes
try disk_flood $run --disk 2m --memory 256m -- dd if=/dev/zero of=/tmp/file bs=64k count=512
try host_backend $run --backend host --pids 8 --memory 32m -- actor detach
try host_backend_memory $run --backend host --memory 32m -- actor memory 128
try host_backend_bomb $run --backend host --pids 16 --timeout 60s -- actor bomb
kill_supervisor killed_supervisor $groups cofferdam run -- sleep 1000

# Root in a service, beside which the slice hands out controllers.
mkdir -p $groups/system.slice/test.service
echo '+cpu +memory +pids' >$groups/system.slice/cgroup.subtree_control
service=$groups/system.slice/test.service
try_in service_plain $service $run --cpus 1 -- true
try_in service_memory_hog $service $run --memory 32m -- actor memory 128
kill_supervisor service_killed_supervisor $groups/system.slice enter $service cofferdam run -- sleep 1000

# An ordinary user in a scope of the user's own manager: what systemd makes of `systemd-run --user --scope`.
manager=$groups/user.slice/user-1000.slice/user@1000.service
slice=$manager/app.slice
scope=$slice/run.scope
mkdir -p $scope
for dir in $groups/user.slice $groups/user.slice/user-1000.slice $manager $slice; do echo '+cpu +memory +pids' >$dir/cgroup.subtree_control; done
for dir in $manager $slice $scope; do chown 1000:1000 $dir $dir/cgroup.procs $dir/cgroup.threads $dir/cgroup.subtree_control; done
try_in delegated_plain $scope $user $run --cpus 1 -- sh -c 'id -u; cat /proc/self/cgroup'
try_in delegated_memory_hog $scope $user $run --memory 32m -- actor memory 128
try_in delegated_fork_bomb $scope $user $run --pids 16 -- actor bomb
try_in delegated_cpu_burners $scope $user $run --cpu-time 500ms --timeout 60s -- actor burn 3 0
try_in delegated_cpu_quota $scope $user $run --cpus 0.5 -- actor burn 1 500
try_in delegated_host_backend $scope $user $run --backend host --pids 8 -- actor detach
kill_supervisor delegated_killed_supervisor $slice enter $scope $user cofferdam run -- sleep 1000

# A disk.
dd if=/dev/zero of=/tmp/image bs=1M count=64 2>/dev/null
losetup /dev/loop0 /tmp/image
mke2fs /dev/loop0 >/dev/null
mkdir /disk
mount -t ext4 /dev/loop0 /disk

# Sandboxes that stood before their runs came. Their processes have entered their groups by themselves, and init has not.
server=http://127.0.0.1:8080
ask() { wget -qO- --header 'content-type: application/json' --post-data "$1" $server/v1/runs; }
figure() { wget -qO- $server/metrics 2>/dev/null | sed -n "s/^cofferdam_$1 //p"; }
answers() { wget -qO- $server/metrics >/dev/null 2>&1; }
# One more was built than was taken.
stands() { [ "$(figure 'pool_built_total{result="stands"}')" -gt "$(figure 'pool_asked_total{found="ready"}')" ] 2>/dev/null; }
copied() { # NAME CODE: whether the answer is a copy's
    { ask '{"language": "python", "code": "'"$2"'", "limits": {"memory_bytes": 33554432}}' && echo; } >/tmp/warm/$1
    grep -q 'copy of a waiting' /tmp/warm/$1
}
warm() { # PREFIX GROUP [AS...]: what a daemon in that group answers, told when it has gone
    prefix=$1 group=$2
    shift 2
    rm -rf /tmp/warm
    mkdir -m 777 /tmp/warm "/disk/$prefix"
    (enter "$group" env -u COFFERDAM_HISTORY "$@" cofferdam --data-dir "/disk/$prefix" serve) >/tmp/warm/log 2>&1 </dev/null &
    daemon=$!
    await answers || return
    # What was asked for twice is built ahead. The machine has less memory than a run gets unasked.
    for turn in 1 2; do ask '{"command": ["true"], "limits": {"memory_bytes": 67108864}}' >/dev/null; done
    while read -r name request; do
        await stands
        { ask "$request" && echo; } >/tmp/warm/$name
    done <<'END'
plain {"command": ["sh", "-c", "id -u"], "limits": {"memory_bytes": 67108864}}
memory_hog {"command": ["actor", "memory", "128"], "limits": {"memory_bytes": 33554432}}
memory_enough {"command": ["actor", "memory", "24"], "limits": {"memory_bytes": 67108864}}
fork_bomb {"command": ["actor", "bomb"], "limits": {"memory_bytes": 67108864, "processes": 16}}
forks_not_at_all {"command": ["actor", "forks", "0"], "limits": {"memory_bytes": 67108864, "processes": 1}}
forks_to_the_limit {"command": ["actor", "forks", "15"], "limits": {"memory_bytes": 67108864, "processes": 16}}
cpu_burners {"command": ["actor", "burn", "3", "0"], "limits": {"memory_bytes": 67108864, "cpu_time_ms": 500, "wall_time_ms": 60000}}
END
    figure 'pool_asked_total{found="ready"}' >/tmp/warm/taken
    # Only root's daemon keeps interpreters; the first answers come from cold ones, until there is one to copy.
    copies=
    if [ $# = 0 ]; then
        copies="copy copy_hog"
        await copied copy 'import os; print(os.getuid())'
        await copied copy_hog 'x = bytearray(128 << 20)'
    fi
    figure 'pool_built_total{result="failed"}' >/tmp/warm/failed
    await stands
    kill -9 $daemon
    wait $daemon 2>/dev/null
    await nothing_left
    for name in plain memory_hog memory_enough fork_bomb forks_not_at_all forks_to_the_limit cpu_burners $copies taken failed; do
        cp /tmp/warm/$name /tmp/out
        : >/tmp/err
        tell ${prefix}_$name 0
    done
}
warm service_warm $service
warm delegated_warm $scope $user

# A look at a group changes nothing in it: not one controller was handed down by the scope.
try delegated_scope_untouched cat $scope/cgroup.subtree_control $scope/cgroup.type

# The same from a systemd that delegates memory and pids only, as before version 252.
for dir in $slice $slice/.. $groups/user.slice/user-1000.slice; do echo '-cpu' >$dir/cgroup.subtree_control; done
try_in delegated_without_cpu $scope $user $run --memory 32m -- actor memory 128
try_in delegated_without_cpu_whole $scope $user $run --cpus 1 -- nproc
try_in delegated_without_cpu_fraction $scope $user $run --cpus 0.5 -- true

# An ordinary user in a login session: no group is the user's own.
session=$groups/user.slice/user-1000.slice/session-1.scope
mkdir $session
try_in session_plain $session $user $run --cpus 1 -- id -u
try_in session_memory_hog $session $user $run --memory 32m -- actor memory 256
try_in session_forks $session $user $run --pids 16 -- actor forks 32
try_in session_fork_bomb $session $user $run --pids 16 --timeout 1s -- actor bomb
try_in session_cpu_burners $session $user $run --cpu-time 500ms --timeout 60s -- actor burn 3 0
try_in session_host_backend $session $user $run --backend host --waive processes -- actor detach

# Workspaces: on a disk, whose owners this kernel can map, and on tmpfs, whose owners it cannot.
workspace() { # DIR OWNER
    mkdir -p "$1/gone/deep" "$1/kept"
    echo old | tee "$1/file" "$1/gone/deep/file" "$1/kept/file" >/dev/null
    chown -R "$2:$2" "$1"
}
change='echo new >file && mkdir made && echo x >made/file && rm gone/deep/file && id -u && ls'
remove='rm -r gone && mkdir gone && ls -A gone'
look() { (cd "$1" && find . -type f -exec sh -c 'echo "$1 $(stat -c %u "$1") $(cat "$1")"' - {} \; | sort); }
for owner in 0 1000; do
    for disk in /disk /tmp; do
        dir=$disk/ws-$owner
        at=root_on_${disk#/}_of_$owner
        workspace $dir $owner
        try ${at}_ro $run --workspace $dir -- sh -c 'cat kept/file; echo new >file'
        try ${at}_cow $run --workspace $dir:cow -- sh -c "$change"
        try ${at}_cow_remove $run --workspace $dir:cow -- sh -c "$remove"
        try ${at}_cow_look look $dir
        try ${at}_rw $run --workspace $dir:rw -- sh -c "$change"
        try ${at}_rw_look look $dir
    done
done
for disk in /disk /tmp; do
    dir=$disk/ws-user
    at=user_on_${disk#/}
    workspace $dir 1000
    try ${at}_ro $user $run --workspace $dir -- sh -c 'cat kept/file; echo new >file'
    try ${at}_cow $user $run --workspace $dir:cow -- sh -c "$change"
    try ${at}_cow_remove $user $run --workspace $dir:cow -- sh -c "$remove"
    try ${at}_cow_look look $dir
    try ${at}_rw $user $run --workspace $dir:rw -- sh -c "$change"
    try ${at}_rw_look look $dir
done

# What else an older kernel might do differently.
try inside $run -- sh -c 'ls -d /proc/1; ip -o link; cat /proc/self/cgroup'
try denied_call $run -- unshare -U true
mkdir -p /rootdir/usr/bin
cp /usr/bin/busybox /rootdir/usr/bin/
ln -s usr/bin /rootdir/bin
try given_root $run --root /rootdir -- busybox ls /
mkdir -p /disk/rootdir/usr/bin
cp /usr/bin/busybox /disk/rootdir/usr/bin/
ln -s usr/bin /disk/rootdir/bin
try given_root_on_disk $run --root /disk/rootdir -- busybox ls /
try given_root_as_user $user $run --root /rootdir -- busybox ls /
try stdin sh -c "echo text | $run -- cat"
try doctor cofferdam doctor --json

# The same before and after the machine's clock jumps, its process numbers move on and its directories change.
noise='date +%s.%N; sleep 1; date +%s; echo $$; (sh -c "echo \$\$"); od -An -N8 -tx1 /dev/urandom; cat /proc/uptime /proc/sys/kernel/random/boot_id; ls -f /usr/bin | head -n 3; actor as 1000 true; nproc; mktemp -u'
try fixed_before $run --deterministic --seed 7 -- sh -c "$noise"
date -s '2031-05-06 07:08:09' >/dev/null
for turn in 1 2 3 4 5 6 7; do (true); done
touch /usr/bin/aaa /usr/bin/zzz
rm /usr/bin/zzz /usr/bin/aaa
try fixed_after $run --deterministic --seed 7 -- sh -c "$noise"
try fixed_user $user $run --deterministic --seed 7 -- sh -c "$noise"
umount /disk
try mounts_left grep -vxFf /mounts /proc/mounts

echo "done" >&3
sync
poweroff -f
