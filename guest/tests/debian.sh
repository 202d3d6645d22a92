# SPDX-License-Identifier: GPL-2.0
# For the scripts beside it: packages of other Debian releases, unpacked into
# the cache.  They are never installed, and the machine's own package lists
# stay as they are.

tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
module_source=$(cd "$tests/../linux-ccc" && pwd)
cache=$("$tests/../../scripts/cache")/guest
apt_get=$tests/../../scripts/apt-get

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# use_suite SUITE: apt(8) commands speak of SUITE from here on; false if there is
# no such suite on the mirror that the machine uses.
use_suite() {
	local mirror suite=$1
	mirror=$(env -u APT_CONFIG apt-get indextargets --format '$(SITE)' \
		'Created-By: Packages' 'Origin: Debian' | grep -v security | head -n 1)
	if [ -z "$mirror" ]; then
		say "no Debian mirror among this machine's apt sources (try 'apt-get update' first)"
		return 1
	fi
	local dir=$cache/apt-$suite
	mkdir -p "$dir"/lists/partial "$dir"/archives/partial
	: >"$dir/installed"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
		>"$dir/sources.list"
	cat >"$dir/apt.conf" <<-CONF
		Dir::State::Lists "$dir/lists";
		Dir::State::status "$dir/installed";
		Dir::Etc::SourceList "$dir/sources.list";
		Dir::Etc::SourceParts "-";
		Dir::Cache "$dir";
		Dir::Cache::Archives "$dir/archives";
		APT::Sandbox::User "root";
	CONF
	export APT_CONFIG=$dir/apt.conf
	# Lists of today will do.
	[ -z "$(find "$dir/updated" -mtime -1 2>/dev/null)" ] || return 0
	"$apt_get" update && touch "$dir/updated"
}

candidate() {
	apt-cache policy "$1" | awk '/Candidate:/ && $2 != "(none)" {print $2}'
}

# real_package PACKAGE PATTERN: the first dependency of a meta-package that
# matches, or the package itself.
real_package() {
	local real
	real=$(apt-cache depends "$1" | awk -v p="$2" '$1 == "Depends:" && $2 ~ p {print $2; exit}')
	echo "${real:-$1}"
}

# unpack DIR PACKAGE...: downloads packages and unpacks them below DIR.
unpack() {
	local dir=$1
	shift
	mkdir -p "$dir/deb"
	(cd "$dir/deb" && "$apt_get" download "$@") || return 1
	local deb
	for deb in "$dir"/deb/*.deb; do
		dpkg-deb -x "$deb" "$dir" || return 1
	done
	rm -rf "$dir/deb"
}

# headers_61 FLAVOUR: prints a directory with the unpacked headers of Debian
# 12's kernel, usable where it is.
headers_61() {
	local flavour=$1 package version dir release
	use_suite bookworm || return 1
	package=$(real_package "linux-headers-$flavour" '^linux-headers-')
	version=$(candidate "$package")
	[ -n "$version" ] || return 1
	release=${package#linux-headers-}
	dir=$cache/$package-$version
	if [ ! -e "$dir/done" ]; then
		say "fetching $package $version"
		rm -rf "$dir"
		unpack "$dir" "$package" "linux-headers-${release%-"$flavour"}-common" linux-kbuild-6.1 || return 1
		# They name each other by where they would be installed.
		sed -i "s|/usr/src|$dir/usr/src|g" "$dir/usr/src/$package/Makefile"
		echo "$release" >"$dir/release"
		touch "$dir/done"
	fi
	echo "$dir"
}

# image_61: prints a directory with the unpacked kernel for the headers.
image_61() {
	local headers=$1 release version dir
	release=$(cat "$headers/release")
	version=$(candidate "linux-image-$release")
	dir=$cache/linux-image-$release-$version
	if [ ! -e "$dir/done" ]; then
		say "fetching linux-image-$release $version"
		rm -rf "$dir"
		unpack "$dir" "linux-image-$release"
		touch "$dir/done"
	fi
	echo "$dir"
}

# build_module KERNEL-TREE DIR: copies the module's source to DIR and builds it
# there; warnings are errors.
build_module() {
	local tree=$1 dir=$2
	rm -rf "$dir"
	make -s -C "$module_source" dkms-tree DKMS="$dir"
	make -s -C "$dir" KDIR="$tree" KCFLAGS=-Werror modules >"$dir/log" 2>&1
}
