// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who may connect to the daemon as a tenant without a device: of VMs any QEMU may, which has no
//! business there.
use std::{fs, os::unix::fs::MetadataExt, path::Path};

use nix::unistd::{Gid, Group, Uid, User};

/// The set-group-ID bit of a directory: what is made in it has its group.
const SETGID: u32 = 0o2000;

/// The group, if not the daemon's own, whose members may connect to a socket, or could to one that
/// is made there.
pub fn open_to(socket: &Path) -> Option<String> {
    let own = |uid| Some(User::from_uid(Uid::from_raw(uid)).ok()??.gid.as_raw());
    let gid = open_to_group(socket, own)?;
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    Some(group.map_or_else(|| gid.to_string(), |group| group.name))
}

/// The same by its number; `own` is the group of a user.
fn open_to_group(socket: &Path, own: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let directory = fs::metadata(socket.parent()?).ok()?;
    // The daemon's user has made it, and as a rule has its directory.
    let (uid, gid) = match fs::symlink_metadata(socket) {
        Ok(socket) => (socket.mode() & 0o020 != 0).then_some((socket.uid(), socket.gid()))?,
        _ => (directory.mode() & SETGID != 0).then_some((directory.uid(), directory.gid()))?,
    };
    let enters = if directory.gid() == gid { 0o010 } else { 0o001 };
    (directory.mode() & enters != 0 && own(uid)? != gid).then_some(gid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

    use super::*;

    #[test]
    fn who_else_may_connect_is_told() {
        let dir = tempfile::tempdir().expect("directory");
        let socket = dir.path().join("web.sock");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
        };
        let gid = fs::metadata(dir.path()).expect("there").gid();
        let of = |own: u32| open_to_group(&socket, |_| Some(own));
        set(dir.path(), 0o2750);
        assert_eq!((of(gid), of(gid + 1)), (None, Some(gid)), "one that is made there");
        set(dir.path(), 0o750);
        assert_eq!(of(gid + 1), None, "it has the daemon's group");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        set(&socket, 0o660);
        assert_eq!((of(gid), of(gid + 1)), (None, Some(gid)));
        set(dir.path(), 0o700);
        assert_eq!(of(gid + 1), None, "nobody enters");
        set(dir.path(), 0o750);
        set(&socket, 0o600);
        assert_eq!(of(gid + 1), None, "nobody connects");
        assert_eq!(open_to(Path::new("/nowhere/at/all")), None);
    }
}
