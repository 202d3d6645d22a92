# SPDX-License-Identifier: GPL-2.0
# Guests of this machine's busybox and a packaged kernel, for scripts that have
# debian.sh already: they set `work`, a directory, `root`, the initrd's root in
# it, and `build`, where the module was built.

# add PROGRAM...: into the initrd, with its libraries.
add() {
	local program file
	for program in "$@"; do
		program=$(readlink -f "$(command -v "$program")")
		install -D "$program" "$root/bin/real-${program##*/}"
		for file in $(ldd "$program" 2>/dev/null | grep -oE '/[^ ]+'); do
			install -D "$file" "$root/$file"
		done
	done
}

# add_modules IMAGE RELEASE MODULE...: the kernel's modules of these names, with
# those that they depend on, and the one that was built.
add_modules() {
	local image=$1 release=$2 base=lib/modules/$2 module
	shift 2
	mkdir -p "$work/all" "$work/mod/lib/modules"
	cp -r "$image/lib/modules/$release/." "$work/all"
	mv "$work/all" "$work/mod/$base"
	cp "$build/ccc.ko" "$work/mod/$base/"
	depmod -b "$work/mod" "$release"
	for module in ccc "$@"; do
		modprobe -d "$work/mod" -S "$release" --show-depends "$module" 2>/dev/null |
			awk '$1 == "insmod" {print $2}'
	done | sort -u | while read -r module; do
		install -D -m 644 "$module" "$root/${module#"$work/mod/"}"
	done
	: >"$root/$base/modules.order"
	cp "$image/$base"/modules.builtin* "$root/$base/"
	depmod -b "$root" "$release"
}

# base_root PROGRAM...: an empty root with busybox and these programs.
base_root() {
	mkdir -p "$root"/{bin,proc,sys,run,dev,tmp,etc}
	add busybox "$@"
	busybox --list | while read -r applet; do
		ln -s real-busybox "$root/bin/$applet"
	done
	# Where the kernel looks for modprobe.
	ln -s bin "$root/sbin"
	install -m 644 "$tests/guest-begin.sh" "$root/begin"
}

pack_root() {
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1)
}
