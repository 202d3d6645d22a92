// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a tenant without a device is, which can be written in more than one way.
use std::path::{Path, PathBuf};

/// Whether these are one place, however they are written.
pub fn is_same_place(one: &str, other: &str) -> bool {
    let parts = |place: &str| {
        let (kind, at) = place.split_once(':').unwrap_or_default();
        let at = match kind {
            // Its path begins at the root in any case.
            "cgroup" => at.trim_start_matches('/').into(),
            // A name, or a path, which stays as it is.
            "netns" => in_run(&Path::new("/run/netns").join(at)),
            // A CID, or a socket.
            _ => at
                .parse::<u32>()
                .map_or_else(|_| in_run(Path::new(at)), |cid| cid.to_string().into()),
        };
        (kind.to_owned(), at)
    };
    parts(one) == parts(other)
}

/// A path by `/run`, to which `/var/run` is a link (FHS 3.0, 5.13).
fn in_run(path: &Path) -> PathBuf {
    path.strip_prefix("/var/run").map_or(path.to_owned(), |below| Path::new("/run").join(below))
}

#[cfg(test)]
mod tests {
    use super::is_same_place;

    #[test]
    fn a_place_is_the_same_however_it_is_written() {
        for (one, other) in [
            ("vsock:7", "vsock:07"),
            ("vsock:/run/vm1", "vsock:/run//vm1/"),
            ("cgroup:/web.slice", "cgroup:web.slice"),
            ("netns:a", "netns:a"),
            ("netns:a", "netns:/run/netns/a"),
            ("netns:a", "netns:/run//netns/a"),
            ("netns:a", "netns:/var/run/netns/a"),
            ("vsock:/run/a", "vsock:/var/run/a"),
            ("cgroup:a//b", "cgroup:/a/b/"),
        ] {
            assert!(is_same_place(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("vsock:7", "vsock:70"),
            ("netns:a", "cgroup:a"),
            ("netns:7", "netns:07"),
            ("cgroup:1", "cgroup:001"),
            ("vsock:/run/a", "vsock:/run/b"),
            ("netns:a", "netns:/var/netns/a"),
            ("netns:a", "netns:/var/running/netns/a"),
        ] {
            assert!(!is_same_place(one, other), "{one} {other}");
        }
    }
}
