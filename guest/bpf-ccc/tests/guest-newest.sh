#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Init of the guest of run-on-newest: a daemon, the loader, and a namespace that sends.
. /begin

mkfifo /run/open
exec 9<>/run/open

n=0
check() {
	n=$((n + 1))
	if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}

ctl() { real-cccctl --socket /run/control.sock "$@"; }

# within COMMAND...: whether it succeeds within 20 seconds.
within() {
	end=$(($(cut -d. -f1 /proc/uptime) + 20))
	until "$@" >/dev/null 2>&1; do
		[ "$(cut -d. -f1 /proc/uptime)" -lt $end ] || return 1
		sleep 0.2
	done
}

registered() {
	grep -q "ccc_$1" /proc/sys/net/ipv4/tcp_available_congestion_control
}

coupled() {
	ctl --json show sender | tr -d ' \n' | grep -q "\"coupled_flows\":$1[,}]"
}

# send ALGORITHM PORT: data with pauses, after each of which it begins anew.
send() {
	ip netns exec sender sysctl -q net.ipv4.tcp_congestion_control="$1"
	nc -l -p "$2" >/dev/null </run/open &
	sleep 0.3
	while sleep 0.1; do head -c 5000 /dev/zero; done |
		ip netns exec sender nc 10.0.0.1 "$2" >/dev/null &
}

uses() {
	ip netns exec sender real-ss -tin | grep -qw "ccc_$1"
}

# taps: what comes in from the namespace; the two flows of the tenant's time are coupled.
taps() {
	real-ccc-bpf taps sender --count 1 --interval 3 --control /run/control.sock >/run/taps
	sed 's/^/# /' /run/taps
	awk '$1 == "sender" { exit !($3 > 0 && $4 > 0) }' /run/taps &&
		grep -q ': not coupled: .* to 10.0.0.1:5000: ' /run/taps &&
		! grep -q ' to 10.0.0.1:500[12]: ' /run/taps
}

echo "# $(uname -r)"
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
modprobe -a veth tcp_diag
ip netns add sender
ip link add near type veth peer name far netns sender
ip address add 10.0.0.1/24 dev near
ip -n sender address add 10.0.0.2/24 dev far
ip link set near up
ip -n sender link set far up

printf '[daemon]\ncontrol = "/run/control.sock"\n[group.g]\n' >/etc/ccc.toml
real-ccc-vhost --config /etc/ccc.toml &
within ctl list
# Of before the tenant is there, so it is never coupled.
send reno 5000
ctl tenant add sender --netns sender --group g --vhost-socket /run/sender.sock
real-ccc-bpf run --control /run/control.sock &
for algorithm in reno cubic; do
	within registered $algorithm
	check "ccc_$algorithm is registered" $?
done

coupled=0
for algorithm in reno cubic; do
	coupled=$((coupled + 1))
	send $algorithm 500$coupled
	within coupled $coupled
	check "a flow of $algorithm is coupled" $?
	uses $algorithm
	check "it is ccc_$algorithm's" $?
done
ctl set sender --tap near >/dev/null
taps
check "the flow of before it is the one that is not coupled" $?
[ "$(wc -l </proc/net/packet)" = 1 ]
check "nothing of that is at the tap afterwards" $?
echo "# end"
poweroff -f
