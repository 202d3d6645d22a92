#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Init of the sanitized guest: does the steps of one test, named on the kernel's
# command line, and says on the console how that went.  What the kernel has to
# say about it is the host's to read: it panics at the first report.
. /begin

for word in $(cat /proc/cmdline); do
	case $word in
	guest.test=*) test=${word#*=} ;;
	guest.seconds=*) seconds=${word#*=} ;;
	guest.seed=*) seed=${word#*=} ;;
	esac
done
all=ccc,ccc,reno,cubic,bbr,dctcp,vegas
flows=/sys/kernel/debug/ccc/flows
driver=/sys/bus/virtio/drivers/ccc

fail() {
	echo "@ failed $*"
	sleep 1
	poweroff -f
}

# The far end is a namespace behind a second network card, so that flows leave
# the guest as they do anywhere.
network() {
	ip link set lo up
	ip netns add far
	ip link set eth1 netns far
	ip -n far link set lo up
	set -- 1 "" eth0 2 "-n far" eth1
	while [ $# -gt 0 ]; do
		ip $2 address add "10.0.0.$1/24" dev "$3"
		ip $2 address add "fd00::$1/64" dev "$3" nodad
		ip $2 link set "$3" up
		shift 3
	done
	real-tc qdisc add dev eth0 root netem rate 20mbit delay 10ms limit 60 loss 0.5% || fail "no bottleneck"
	ip netns exec far /stress --sink &
	sleep 1
}

# Whether there is time for another round.
more() {
	now=$(cut -d. -f1 /proc/uptime)
	: "${deadline:=$((now + seconds))}"
	[ "$now" -lt "$deadline" ]
}

stress() {
	/stress --to 10.0.0.2 --seconds="$seconds" --seed="$seed" --algorithms "$all" --uid 65534 "$@" ||
		fail "the flows did nothing: stress $*"
}

await() {
	what=$1
	shift
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || fail "$what: not within a minute"
		usleep 200000
	done
}

coupled() { [ "$(grep -c ' coupled$' $flows)" -gt 0 ]; }
no_device() { grep -q "no device" /sys/kernel/debug/ccc/device; }
device_name() { basename "$(ls -d /sys/bus/virtio/devices/* | while read -r d; do
	grep -q 0x003f "$d/device" && echo "$d"; done)"; }

# Everything that anyone may read, again and again.
watch_debugfs() {
	while :; do cat /sys/kernel/debug/ccc/* /proc/net/tcp >/dev/null 2>&1; done &
	watcher=$!
}

# In the background: flows of `ccc` that stay, and others beside them.
begin_flows() {
	/stress --to 10.0.0.2 --seconds 100000 --seed="$seed" --uid 65534 --senders 6 --churners 2 --dumpers 1 \
		--algorithms ccc "$@" &
	stressor=$!
}

end_flows() {
	kill $stressor
	wait $stressor || fail "the flows did nothing"
	kill $watcher 2>/dev/null
}

# A flow's owner changes its algorithm while he asks what it says of itself.  No
# device, no rights.  BBR leaves most behind, after each ACK; over loopback ACKs
# come at once.
switches_while_read() {
	insmod /slow_info.ko || fail "slow_info does not load"
	/stress --sink &
	sleep 1
	stress --to 127.0.0.1 --senders 2 --switchers 1 --readers 3 --algorithms bbr,ccc --switches 300
	stress --senders 4 --switchers 2 --readers 2 --dumpers 1
}

# The same, coupled, with connections that come and go.
coupled_flows() {
	watch_debugfs
	begin_flows
	await "a coupled flow" coupled
	sleep "$seconds"
	end_flows
	watch_debugfs
	stress --senders 4 --churners 4 --switchers 2 --readers 2 --dumpers 1 &
	/stress --to fd00::2 --seconds="$seconds" --seed="$seed" --algorithms "$all" --churners 2 \
		--switchers 1 --readers 1 || fail "nothing over IPv6"
	wait $!
	kill $watcher
}

# The driver lets go of its device, and takes it again, under live flows.
unbinds() {
	watch_debugfs
	begin_flows
	name=$(device_name)
	while more; do
		await "a coupled flow" coupled
		echo "$name" >$driver/unbind || fail "unbind"
		await "no device" no_device
		usleep 300000
		echo "$name" >$driver/bind || fail "bind"
	done
	end_flows
}

# The whole card goes, and is found again.
removals() {
	watch_debugfs
	begin_flows
	while more; do
		await "a coupled flow" coupled
		card=$(readlink -f "/sys/bus/virtio/devices/$(device_name)/..")
		echo 1 >"$card/remove" || fail "remove"
		await "no device" no_device
		usleep 300000
		echo 1 >/sys/bus/pci/rescan || fail "rescan"
	done
	end_flows
}

# As in sleep: every driver's freeze and restore, but for the sleep itself.
suspends() {
	watch_debugfs
	begin_flows
	echo devices >/sys/power/pm_test || fail "pm_test"
	while more; do
		await "a coupled flow" coupled
		echo freeze >/sys/power/state || fail "freeze"
	done
	end_flows
}

# The module goes as soon as no flow has it, and comes back.
reloads() {
	watch_debugfs
	stress --senders 1 --algorithms reno,cubic &
	rounds=0
	while more; do
		/stress --to 10.0.0.2 --seconds=1 --seed="$seed" --algorithms ccc,reno --senders 1 --churners 2 \
			--switchers 1 --dumpers 1 &
		stressor=$!
		usleep 500000
		tries=0
		until rmmod ccc 2>/dev/null; do
			tries=$((tries + 1))
			[ $tries -lt 3000 ] || fail "the module does not unload"
			usleep 20000
		done
		wait $stressor
		insmod /ccc.ko inner=$inner || fail "the module does not load again"
		rounds=$((rounds + 1))
	done
	echo "# reloads: $rounds"
	kill $watcher
	await "no flow" [ ! -s $flows ]
}

# The device misbehaves; the driver takes it anew now and then, as an
# administrator would.
hostile() {
	watch_debugfs
	begin_flows --switchers 1 --readers 1 --algorithms ccc,ccc,ccc,cubic
	name=$(device_name)
	tries=0
	while more; do
		sleep 2
		[ ! -e "$driver/$name" ] || echo "$name" >$driver/unbind
		# It may be so bad that it is not taken.
		echo "$name" >$driver/bind 2>/dev/null
	done
	end_flows
}

# Nothing but flows: what happens is the host's affair.
watched_flows() {
	watch_debugfs
	begin_flows
	await "a coupled flow" coupled
	echo "@ coupled"
	sleep "$seconds"
	await "a coupled flow at the end" coupled
	end_flows
}

network
# What happens at boot is not the module's affair.  First a race that is one.
kcsan=/sys/kernel/debug/kcsan
if [ -e $kcsan ]; then
	echo on >$kcsan
	insmod /racy.ko && sleep 2 && rmmod racy || fail "no race"
fi
# Each inner algorithm in some test: CUBIC has the most state, DCTCP changes its
# operations, Vegas counts round trips.
case $test in
coupled_flows) inner=cubic ;;
reloads) inner=dctcp ;;
unbinds) inner=vegas ;;
*) inner=reno ;;
esac
insmod /ccc.ko inner=$inner || fail "the module does not load"
# Users without rights may choose any.
sysctl -q net.ipv4.tcp_allowed_congestion_control="$(cat /proc/sys/net/ipv4/tcp_available_congestion_control)"
echo "@ begin $test $(cut -d' ' -f1 /proc/uptime)"
$test
[ ! -e $kcsan ] || echo "# $(grep -E '^(setup_watchpoints|data_races):' $kcsan | tr '\n' ' ')"
echo "@ ok $test $(cut -d' ' -f1 /proc/uptime)"
sleep 1
poweroff -f
