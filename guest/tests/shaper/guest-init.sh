#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Init of the guest of `make bench-enforce`: a host with a bridge, two VMs at taps and an
# uplink.  Its clock is QEMU's, a nanosecond for each instruction.  It says on the console
# what a packet of a VM takes to the sink,
#   @ <what the host does> <nanoseconds> <packets that arrived>
# and, where packets wait or none are sent, how often a loop went round meanwhile that has
# what of the processor nothing else wants:
#   = <what the host does> <rounds> <nanoseconds> <packets that arrived>
. /begin

# busybox has one of its own.
tc() { real-tc "$@"; }

for module in veth bridge ifb sch_htb sch_fq_codel sch_ingress act_mirred cls_u32 tun; do
	modprobe $module 2>/run/modprobe || cat /run/modprobe
done
count=5000
# No more than what is enough for all: nothing waits, for a wait is no instruction.
rate=400gbit
# Of the VM that is held, and its packets wait.
cap_mbit=100

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
# So many fit into the shaper's queue, and have left it in that time.
few=700
spare() { # NAME
	for _ in 1 2 3 4 5; do
		before=$(arrived)
		took=$(ip netns exec vm1 /packets spare $few 200)
		echo "= $1 $took $(($(arrived) - before))"
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
tc class change dev up0 parent 1:ff classid 1:1 htb rate ${cap_mbit}mbit ceil ${cap_mbit}mbit
spare waiting-htb

# What the daemon does to a VM that it holds: it is above its cap, and the daemon is killed
# and leaves all as it is.  Only the rate is another, so that nothing waits, until `waiting`.
write_config() { # TAPS: the first is the VM's
	printf '[daemon]\ncontrol = "/run/control"\n[group.uplink]\nenforce = "on"\n'
	printf '[vm.vm1]\nsocket = "/run/vm1"\ngroup = "uplink"\ntap = "tap1"\ncap_mbit = %s\n' $cap_mbit
	for n in $(seq 2 "$1"); do
		printf '[vm.idle%s]\nsocket = "/run/idle%s"\ngroup = "uplink"\ntap = "idle%s"\n' $n $n $n
	done
}
daemon() { # TAPS
	write_config "$1" >/run/ccc.toml
	ccc-vhost --config /run/ccc.toml 2>/run/ccc.log &
	pid=$!
	usleep 500000
}
tc qdisc replace dev up0 root pfifo limit 2000
daemon 1
for try in $(seq 100); do
	ip netns exec vm1 /packets send $count >/run/warm
	shaper=$(cd /sys/class/net && echo ccc-ifb*)
	[ -e "/sys/class/net/$shaper" ] && break
done
# Until it is held to its cap.
usleep 500000
kill -9 $pid
cat /run/ccc.log
tc class show dev "$shaper"
tc qdisc show dev "$shaper"
spare waiting-held
tc class change dev "$shaper" parent ccc: classid ccc:1 htb rate $rate burst 4mb cburst 4mb quantum 65536
tc qdisc change dev "$shaper" parent ccc:1 handle ccd: bfifo limit 16mb
measure held
tc qdisc delete dev tap1 ingress
ip link delete "$shaper"
measure let-go
spare waiting-fifo

# What the daemon takes that looks at taps of VMs that do nothing.
looks() { # TAPS
	for _ in 1 2 3; do
		echo "= $1 $(/packets spare 0 1000) 0"
	done
}
looks no-daemon
for taps in 10 100; do
	for n in $(seq 2 $taps); do
		[ -e "/sys/class/net/idle$n" ] || ip tuntap add dev "idle$n" mode tap
	done
	daemon $taps
	looks taps-$taps
	kill $pid
	wait $pid
	grep 'is not there' /run/ccc.log
done

echo "@ end"
poweroff -f
