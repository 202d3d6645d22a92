# SPDX-License-Identifier: GPL-2.0
# What the init of every guest made by ccc_build.initrd begins with.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mount -t tmpfs tmp /run

# busybox has an ip of its own.
ip() { real-ip "$@"; }
