// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Where file systems are mounted: proc_pid_mounts(5).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::{fs, io};

/// Where file systems of a type are mounted in this mount namespace, in the kernel's order.
///
/// # Errors
/// If /proc cannot be read.
pub fn of_type(kind: &str) -> io::Result<Vec<PathBuf>> {
    Ok(listed(&fs::read("/proc/self/mounts")?, kind))
}

fn listed(mounts: &[u8], kind: &str) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ').skip(1);
        let path = words.next()?;
        (words.next()? == kind.as_bytes()).then(|| unescaped(path))
    };
    mounts.split(|byte| *byte == b'\n').filter_map(path).collect()
}

/// A word of the list, in which the kernel writes bytes that would end it, and `\`, as three
/// octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'\\').then(|| octal(after)).flatten();
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

fn octal(word: &[u8]) -> Option<u8> {
    let digits = std::ffi::OsStr::from_bytes(word.get(..3)?).to_str()?;
    u8::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_they_were_before_the_kernel_wrote_them() {
        let mounts = b"none /sys/fs/bpf bpf rw 0 0\n\
            none /run/a\\040b\\134c bpf rw 0 0\n\
            none /proc proc rw 0 0\n\
            none /run/odd\\9 bpf rw 0 0\n";
        let paths: Vec<PathBuf> =
            ["/sys/fs/bpf", "/run/a b\\c", "/run/odd\\9"].map(PathBuf::from).into();
        assert_eq!(listed(mounts, "bpf"), paths);
    }
}
