#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Init of the guest of run-on-6.1.
. /begin

mkfifo /run/open
exec 9<>/run/open

n=0
check() {
	n=$((n + 1))
	if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}

# transfer ALGORITHM ADDRESS: seconds, of 100, for 5 MB through the queue.
transfer() {
	ip netns exec tx sysctl -q net.ipv4.tcp_congestion_control="$1" || return 1
	# With its input at an end nc would close the connection.
	ip netns exec rx timeout 20 nc -l -p 5000 >/run/received </run/open &
	receiver=$!
	sleep 0.3
	begin=$(cut -d' ' -f1 /proc/uptime | tr -d .)
	head -c 5000000 /dev/zero | ip netns exec tx timeout 20 nc "$2" 5000 >/dev/null &
	sleep 1
	ip netns exec tx real-ss -tin >/run/ss
	wait $receiver
	end=$(cut -d' ' -f1 /proc/uptime | tr -d .)
	[ "$(stat -c %s /run/received)" = 5000000 ] || return 1
	echo $((end - begin))
}

# Once the last socket has gone; a closing one takes a moment.
unload() {
	ip netns exec tx sysctl -q net.ipv4.tcp_congestion_control=reno
	for try in 1 2 3 4 5; do
		rmmod ccc 2>/dev/null && return 0
		sleep 1
	done
	return 1
}

modprobe ccc
check "the module loads" $?
grep -qw ccc /proc/sys/net/ipv4/tcp_available_congestion_control
check "the algorithm is there" $?
grep -q "no device" /sys/kernel/debug/ccc/device
check "there is no device" $?

modprobe veth
modprobe sch_netem
modprobe ipv6 2>/dev/null
modprobe tcp_diag
ip netns add tx
ip netns add rx
ip link add name left netns tx type veth peer name right netns rx
for side in "tx left 1" "rx right 2"; do
	set -- $side
	ip -n "$1" link set "$2" gso_max_segs 1
	ip -n "$1" address add "10.0.0.$3/24" dev "$2"
	ip -n "$1" address add "fd00::$3/64" dev "$2" nodad
	ip -n "$1" link set "$2" up
done
# 83 packets, as in the laboratory; 20 ms, so that 2 seconds see some losses.
ip netns exec tx real-tc qdisc add dev left root netem rate 20mbit limit 83
check "the bottleneck is there" $?
ip netns exec rx real-tc qdisc add dev right root netem delay 20ms

reno=$(transfer reno 10.0.0.2)
check "reno carries data" $?
ccc=$(transfer ccc 10.0.0.2)
check "ccc carries data" $?
grep -q "ccc .*cwnd:" /run/ss
check "ss shows ccc" $?
! grep -q cwnd_gain /run/ss
check "the flow is not coupled" $?
echo "# 5 MB at 20 Mbit/s: reno $reno, ccc $ccc hundredths of a second"
[ "$ccc" -lt $((reno * 5 / 4)) ] && [ "$reno" -lt $((ccc * 5 / 4)) ]
check "ccc takes as long as reno" $?
ccc6=$(transfer ccc fd00::2)
check "ccc carries data over IPv6" $?

unload
check "the module unloads" $?
for inner in cubic vegas dctcp; do
	modprobe ccc inner=$inner && grep -qx $inner /sys/module/ccc/parameters/inner &&
		# Over a restricted algorithm (dctcp) ccc is one as well: namespaces are to be allowed it.
		sysctl -q net.ipv4.tcp_allowed_congestion_control="reno ccc" &&
		transfer ccc 10.0.0.2 >/run/time
	check "inner $inner carries data" $?
	echo "# inner $inner: $(cat /run/time) hundredths of a second"
	unload
	check "and unloads" $?
done
modprobe tcp_bbr
! modprobe ccc inner=bbr 2>/dev/null
check "bbr is refused: it is not window-based" $?
! modprobe ccc inner=nonsense 2>/dev/null
check "an unknown inner algorithm is refused" $?

modprobe ccc
ip netns exec tx sysctl -q net.ipv4.tcp_congestion_control=ccc
ip netns exec rx timeout 20 nc -l -p 5001 >/dev/null </run/open &
sleep 0.3
sleep 2 | ip netns exec tx nc 10.0.0.2 5001 &
sleep 0.5
# Only that socket has it now.
ip netns exec tx sysctl -q net.ipv4.tcp_congestion_control=reno
! rmmod ccc 2>/dev/null
check "it does not unload under an open socket" $?
sleep 2
unload
check "but after it" $?

for round in 1 2 3 4 5 6 7 8 9 10; do modprobe ccc && rmmod ccc || break; done
[ ! -d /sys/module/ccc ] && [ "$round" = 10 ]
check "it loads and unloads ten times" $?
dmesg | grep -E "BUG|WARNING|Oops|refcount|leak" >/run/bad
[ ! -s /run/bad ]
check "the kernel has nothing to complain about" $?
sed 's/^/# /' /run/bad
echo "# end"
poweroff -f
