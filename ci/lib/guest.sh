#!/bin/busybox sh
# The first process of a machine that ci/systems.sh boots. It prints the topology that the command
# found, one line per check, and END. The file /row says what this machine is for.
export PATH=/bin HOME=/ LC_ALL=C
busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmp /tmp
busybox --install -s /bin
ulimit -c 0
offline=
. /row
for cpu in $offline; do
    echo 0 >"/sys/devices/system/cpu/cpu$cpu/online"
done
echo "KERNEL $(uname -r) after $(cut -d' ' -f1 /proc/uptime) s"

# failed WHAT FILE: with the end of that file.
failed() {
    echo "FAILED: $1"
    grep -v '^ok' "$2" | tail -n 12 | sed 's/^/| /'
}

# torture WHAT ARGUMENTS...: a second is short on a slow processor, so not all that the torture
# wants to have seen ("reach") comes to pass; whatever was seen must be right.
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

# Without the library, and under it, a program prints the same and has the same status.
same() {
    "$@" >/tmp/want 2>&1 || failed "$1 without the library: status $?" /tmp/want
    # An empty file says that no process has counted.
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

kinlock topology --json /tmp/topology >/tmp/table 2>&1 || failed "topology: status $?" /tmp/table
echo TOPOLOGY
cat /tmp/topology
echo
echo TOPOLOGY ends
# A wait counts as endless after minutes: the processor is emulated, and may be slow.
torture locks --threads 4 --hang 200 --locks kinlock-mutex,kinlock-spin,kinlock-rwlock \
    --scenarios basics,condvar,timed,signals
torture ids --scenarios leases,sequences
if grep -q 'rseq/sequences/exclusion' /tmp/output; then echo IDS sequences; else echo IDS leases; fi
same codes
same cancel
echo END
# The host ends the machine; without a first process the kernel would only panic.
sleep 1000
