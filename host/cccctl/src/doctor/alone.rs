// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections of this host that an upgrade of ccc-bpf has left alone: it marks among its pins that
//! they are there, for neither it nor the daemon sees them any more.
use std::{
    fs,
    path::{Path, PathBuf},
};

use super::Finding;
use crate::mounts;

/// How such a mark begins: alone-MAP-TENANTS.
const MARK: &str = "alone-";

/// What there is of them on this host.  Only root may look there.
pub fn of_this_host() -> Option<Finding> {
    found(&mounts::of_type("bpf").unwrap_or_default())
}

/// The same below where programs may be pinned.
fn found(places: &[PathBuf]) -> Option<Finding> {
    let tenants: u64 = places.iter().map(|place| tenants_below(place)).sum();
    (tenants > 0).then(|| Finding {
        of: "ccc-bpf".to_owned(),
        what: format!(
            "connections of {tenants} tenants that were open when it was upgraded go on alone: the \
             program that they began with has other tables"
        ),
        remedy: "nothing, and they end some time; or have them opened anew, which are coupled: restart \
                 the services that have them (ss -ti shows ccc_reno or ccc_cubic, ccc-bpf flows those \
                 that are not alone)"
            .to_owned(),
    })
}

/// Of how many tenants all marks below a directory tell: `--pins` may be anywhere there.
fn tenants_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let inside = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let of = |path: PathBuf| tenants(&path).unwrap_or_else(|| tenants_below(&path));
    inside.map(|entry| of(entry.path())).sum()
}

/// Of how many tenants a mark tells.
fn tenants(mark: &Path) -> Option<u64> {
    let (map, tenants) = mark.file_name()?.to_str()?.strip_prefix(MARK)?.split_once('-')?;
    map.parse::<u32>().ok()?;
    tenants.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_an_upgrade_has_left_alone_are_told() {
        let dir = tempfile::tempdir().expect("directory");
        let places = [dir.path().to_owned(), "/nowhere".into()];
        let make = |name: &str| fs::create_dir_all(dir.path().join(name)).expect("made");
        make("ccc/0123456789abcdef/complete");
        make("others/alone-by-choice");
        assert_eq!(found(&places), None);
        make("ccc/alone-17-3");
        make("mine/alone-19-1");
        let finding = found(&places).expect("told");
        assert!(finding.what.starts_with("connections of 4 tenants that were open"), "{finding:?}");
        make("of/a/team/ccc/alone-23-5");
        make("alone-29-7");
        let finding = found(&places).expect("told");
        assert!(finding.what.starts_with("connections of 16 tenants"), "at any depth: {finding:?}");
    }
}
