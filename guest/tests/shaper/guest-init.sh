#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Init of the guest of `make bench-enforce`: a host with a bridge, two VMs at taps and an
# uplink.  It says on the console what a packet of a VM takes to the sink, in nanoseconds,
# of which QEMU makes one of each instruction:
#   @ <what the host does> <nanoseconds> <packets that arrived>
. /begin

# busybox has one of its own.
tc() { real-tc "$@"; }

for module in veth bridge ifb sch_tbf sch_htb sch_fq_codel sch_ingress act_mirred cls_u32; do
	modprobe $module 2>/run/modprobe || cat /run/modprobe
done
count=5000
# No more than what is enough for all: nothing waits, for a wait is no instruction.
rate=400gbit

plug() { # NAMESPACE ADDRESS PORT
	ip netns add "$1"
	ip link add "$3" type veth peer name eth0 netns "$1"
	ip link set "$3" master br0 up
	ip -n "$1" address add "$2/24" dev eth0
	ip -n "$1" link set eth0 up
	ip -n "$1" link set lo up
}
mkdir -p /run/netns
ip link add br0 type bridge
ip link set br0 up
plug vm1 10.0.0.1 tap1
plug vm2 10.0.0.2 tap2
plug sink 10.0.0.9 up0
ip netns exec sink /packets listen &

arrived() { ip netns exec sink cat /sys/class/net/eth0/statistics/rx_packets; }
measure() { # NAME
	# The first ones ask for addresses, and fill caches.
	ip netns exec vm1 /packets send 200 >/run/warm
	usleep 200000
	# Now and then the kernel does other work meanwhile: the median is not of those.
	for _ in 1 2 3 4 5; do
		before=$(arrived)
		took=$(ip netns exec vm1 /packets send $count)
		usleep 200000
		echo "@ $1 $took $(($(arrived) - before))"
	done
}
uplink() { # NAME QDISC...
	name=$1
	shift
	tc qdisc replace dev up0 root "$@"
	measure "$name"
}

uplink none noqueue
uplink fifo pfifo limit 1000
uplink fifo-again pfifo limit 1000

# A class for each VM, which borrows, with FQ-CoDel.
tc qdisc replace dev up0 root handle 1: htb default 2
tc class add dev up0 parent 1: classid 1:ff htb rate $rate
for vm in 1 2; do
	tc class add dev up0 parent 1:ff classid 1:$vm htb rate 200gbit ceil $rate
	tc qdisc add dev up0 parent 1:$vm fq_codel
	tc filter add dev up0 parent 1: protocol ip prio 1 u32 match ip src 10.0.0.$vm/32 flowid 1:$vm
done
measure htb-fq_codel

# What the daemon does to a VM that it holds (host/ccc-vhost/src/tap/kernel.rs).
tc qdisc replace dev up0 root pfifo limit 1000
ip link add ccc-ifb1 type ifb
ip link set ccc-ifb1 up
tc qdisc add dev ccc-ifb1 root tbf rate $rate burst 4mb limit 16mb
tc qdisc add dev tap1 ingress
tc filter add dev tap1 parent ffff: protocol all prio 3276 u32 match u32 0 0 action mirred egress redirect dev ccc-ifb1
measure held
tc qdisc delete dev tap1 ingress
ip link delete ccc-ifb1
measure let-go

echo "@ end"
poweroff -f
