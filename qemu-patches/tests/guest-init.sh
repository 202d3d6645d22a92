#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Init of the guest of the QEMU tests.  Sends flows to the address on the kernel's
# command line for ever, and says four times a second on the console what it sees:
#   @ <uptime> established <connections> coupled <flows> device <1 if there is one>
. /begin

for word in $(cat /proc/cmdline); do
	case $word in
	guest.flows=*) flows=${word#*=} ;;
	guest.to=*) to=${word#*=} ;;
	guest.address=*) address=${word#*=} ;;
	guest.sleep=*) sleep_at=${word#*=} ;;
	guest.plain=*) plain=${word#*=} ;;
	esac
done

# The power button wakes the guest.
for module in virtio_pci virtio_mmio virtio_net vmxnet3 tcp_diag button; do
	modprobe $module 2>/run/modprobe || cat /run/modprobe
done
modprobe ccc || echo "! no module"
link=$(ls /sys/class/net | grep -v lo | head -n 1)
ip address add "$address" dev "$link"
ip link set "$link" up

# Those of plain Reno, known by their ports, are there before the algorithm changes.
sysctl -q net.ipv4.tcp_congestion_control=reno net.ipv4.ip_local_port_range="6000 6009"
n=0
while [ $n -lt "${plain:-0}" ]; do
	nc "$to" 5000 </dev/zero >/dev/null 2>&1 &
	n=$((n + 1))
done
while [ "$(real-ss -Htn state established dport = 5000 | wc -l)" -lt "${plain:-0}" ]; do
	usleep 100000
done

sysctl -q net.ipv4.ip_local_port_range="32768 60999"
sysctl -q net.ipv4.tcp_congestion_control=ccc || echo "! no algorithm"
n=0
while [ $n -lt "${flows:-4}" ]; do
	# The connection is never opened again: one that breaks is missed.
	nc "$to" 5000 </dev/zero >/dev/null 2>&1 &
	n=$((n + 1))
done

if [ -n "${sleep_at-}" ]; then
	(
		while [ "$(cut -d. -f1 /proc/uptime)" -lt "$sleep_at" ]; do sleep 1; done
		# On a slow machine the flows take longer, and somebody has to see them.
		while [ "$(grep -c ' coupled$' /sys/kernel/debug/ccc/flows)" -lt "${flows:-4}" ]; do sleep 1; done
		sleep 10
		echo freeze >/sys/power/state || echo "! WARNING: no sleep"
	) &
fi

while :; do
	established=$(real-ss -Htn state established dport = 5000 | grep -vc ':600[0-9] ')
	coupled=$(grep -c ' coupled$' /sys/kernel/debug/ccc/flows)
	grep -q "no device" /sys/kernel/debug/ccc/device && device=0 || device=1
	echo "@ $(cut -d' ' -f1 /proc/uptime) established $established coupled $coupled device $device"
	dmesg -c | grep -E "BUG|WARNING|Oops|ccc" | sed 's/^/! /'
	usleep 250000
done
