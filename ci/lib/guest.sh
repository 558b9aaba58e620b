#!/bin/busybox sh
# The first process of a machine that ci/systems.sh boots. It prints the topology that the command
# found, one line per check, and END. The file /row says how to set this machine up.
export PATH=/bin HOME=/ LC_ALL=C
busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmp /tmp
busybox --install -s /bin
ulimit -c 0
offline= flavour=
. /row
for cpu in $offline; do
    echo 0 >"/sys/devices/system/cpu/cpu$cpu/online"
done
echo "KERNEL $(uname -r) after $(cut -d' ' -f1 /proc/uptime) s"

# failed WHAT FILE: reports a failure, with the end of that file.
failed() {
    echo "FAILED: $1"
    grep -v '^ok' "$2" | tail -n 12 | sed 's/^/| /'
}

# torture WHAT ARGUMENTS...: tortures for a second. On a slow processor that is too short to reach
# all situations that the torture wants to reach ("reach"), so only the other checks have to pass.
torture() {
    what=$1
    if kinlock-lab torture "$@" --seconds 1 --quiet >/tmp/output 2>&1; then
        echo "ok: torture of $what: $(grep '^Checks' /tmp/output)"
    elif grep -q '^FAILED' /tmp/output && ! grep '^FAILED' /tmp/output | grep -qv '/reach '; then
        echo "ok: torture of $what: $(grep '^Checks' /tmp/output), of what was to be reached"
    else
        failed "torture of $what" /tmp/output
    fi
}

# A program prints the same and has the same status with and without the library.
same() {
    "$@" >/tmp/want 2>&1 || failed "$1 without the library: status $?" /tmp/want
    # The file stays empty if no process counts.
    : >/tmp/counts
    LD_PRELOAD=/lib/libkinlock_preload.so KINLOCK_COUNTS=/tmp/counts "$@" >/tmp/got 2>&1
    status=$?
    if [ "$status" != 0 ] || ! cmp -s /tmp/want /tmp/got; then
        diff /tmp/want /tmp/got >/tmp/differences
        failed "$1 under the library: status $status" /tmp/differences
    elif ! grep -q '"calls":[1-9]' /tmp/counts; then
        failed "$1 under the library: no call was counted" /tmp/counts
    else
        echo "ok: $1: the same under the library"
    fi
}

# Six threads on two CPUs contend for a lock, with the knob off and on in turn. If a holder asks,
# the kernel has to let it end its critical section, and if most holders ask, they have to lose
# their CPU in fewer sections. A CPU executes only 500 instructions per microsecond here, so the
# kernel is set to its longest extension: as many instructions as a real processor executes in 5 to
# 10 us.
time_slices() {
    echo 50000 >/sys/kernel/debug/rseq/slice_ext_nsec
    for lock in mutex spin; do
        : >/tmp/rounds
        for knob in off on off on off on; do
            sed "s/^/before /" /sys/kernel/debug/rseq/stats >/tmp/stats
            LD_PRELOAD=/lib/libkinlock_preload.so KINLOCK_LOCK=kinlock-$lock KINLOCK_SLICE_EXTENSION=$knob \
                slices 6 100000 1000 1000 >/tmp/output 2>&1 ||
                failed "slices of $lock, knob $knob: status $?" /tmp/output
            sed "s/^/after /" /sys/kernel/debug/rseq/stats >>/tmp/stats
            echo "$knob $(cat /tmp/output) $(awk '
                { n[$1 $2] = $3 }
                END { print n["aftersgrant:"] - n["beforesgrant:"] }' /tmp/stats)" >>/tmp/rounds
        done
        awk -v lock=$lock '
            NF != 7 { broken = 1 }
            { for (i = 2; i <= 7; i++) n[$1, i] += $i }
            END {
                for (i = split("on off", knobs); i > 0; i--) {
                    k = knobs[i]
                    printf "| %s %s: %d sections, asked in %d; extensions granted %d, sections ended in one %d; " \
                        "CPU lost in a section %d, in all %d\n", \
                        lock, k, n[k, 2], n[k, 3], n[k, 7], n[k, 4], n[k, 5], n[k, 6]
                }
                mostly = 2 * n["on", 3] > n["on", 2]
                works = n["on", 4] > 0 && n["off", 7] == 0 && (!mostly || n["on", 5] < n["off", 5])
                print (works && !broken ? "ok: " : "FAILED: ") "time slices of holders: " lock
            }' /tmp/rounds
    done
}

if [ "$flavour" = own ]; then
    mount -t debugfs debug /sys/kernel/debug
    export KINLOCK_SLICE_EXTENSION=on
fi
# The argument comes from the command line of the kernel.
if [ "${1:-}" = slices ]; then
    time_slices
    echo END
    sleep 1000
fi
kinlock topology --json /tmp/topology >/tmp/table 2>&1 || failed "topology: status $?" /tmp/table
echo TOPOLOGY
cat /tmp/topology
echo
echo TOPOLOGY ends
if [ "$flavour" = own ]; then
    tr -d ' \n' </tmp/topology | grep -q '"slice_extension":{"offered":true}' ||
        failed "topology: extensions are not offered" /tmp/table
fi
# A wait counts as endless only after minutes, because an emulated processor may be slow.
torture locks --threads 4 --hang 200 --locks kinlock-mutex,kinlock-spin,kinlock-rwlock \
    --scenarios basics,condvar,timed,signals
torture ids --scenarios leases,sequences
if grep -q 'rseq/sequences/exclusion' /tmp/output; then echo IDS sequences; else echo IDS leases; fi
same codes
same cancel
echo END
# The host ends the machine. If the first process ended, the kernel would panic.
sleep 1000
