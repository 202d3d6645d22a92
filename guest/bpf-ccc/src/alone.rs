// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections whose tables nobody serves any more: those of a program before, whose tables were
//! laid out otherwise.  They go on alone until they end, and the daemon does not know of them.
//!
//! So an operator is told by a mark among the pins, an empty directory that `cccctl doctor` looks
//! for: it names the kernel's number of the maps' map, which is there for as long as a socket has the
//! program, and of how many tenants they are.
use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Result;
use libbpf_rs::{ErrorKind, MapHandle};

/// How a mark begins.
const MARK: &str = "alone-";

/// Marks among some pins.
#[derive(Debug)]
pub struct Alone(Vec<(u32, PathBuf)>);

impl Alone {
    /// Those that are there.
    pub fn of(pins: &Path) -> io::Result<Alone> {
        Ok(Alone(marks(pins)?.filter_map(|path| Some((map_of(&path)?, path))).collect()))
    }

    /// Removes marks of programs that no socket has any more.
    pub fn look(&mut self) {
        self.look_by(is_there);
    }

    fn look_by(&mut self, is_there: impl Fn(u32) -> bool) {
        self.0.retain(|(map, path)| {
            if is_there(*map) {
                return true;
            }
            log::info!("connections with tables of another layout have ended");
            // It is tried again by who starts next.
            let _ = fs::remove_dir(path);
            false
        });
    }
}

/// Notes that sockets of so many tenants have a program whose map this is.
pub fn note(pins: &Path, map: u32, tenants: usize) -> io::Result<()> {
    let mark = pins.join(format!("{MARK}{map}-{tenants}"));
    match fs::create_dir(mark) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Removes all of them: so it is when the program is removed, and nobody is to be coupled.
pub fn forget(pins: &Path) -> Result<()> {
    marks(pins)?.try_for_each(|path| Ok(fs::remove_dir(path)?))
}

fn marks(pins: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let all: Vec<_> = fs::read_dir(pins)?.flatten().map(|entry| entry.path()).collect();
    Ok(all.into_iter().filter(|path| map_of(path).is_some()))
}

/// The map that a mark names, if it is one.
fn map_of(path: &Path) -> Option<u32> {
    let (map, tenants) = path.file_name()?.to_str()?.strip_prefix(MARK)?.split_once('-')?;
    tenants.parse::<u32>().ok()?;
    map.parse().ok()
}

/// Unless it is known to have gone.
fn is_there(map: u32) -> bool {
    MapHandle::from_map_id(map).map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_there_for_as_long_as_the_map_that_it_names() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-alone-{}", std::process::id()));
        fs::create_dir(&pins).expect("made");
        fs::create_dir(pins.join("alone-not-ours")).expect("made");
        note(&pins, 7, 3).expect("noted");
        note(&pins, 7, 3).expect("it is there");
        note(&pins, 8, 1).expect("noted");
        let mut alone = Alone::of(&pins).expect("read");
        alone.look_by(|map| map == 7);
        assert!(pins.join("alone-7-3").exists() && !pins.join("alone-8-1").exists());
        alone.look_by(|_| false);
        assert_eq!(marks(&pins).expect("read").count(), 0);
        note(&pins, 9, 1).expect("noted");
        forget(&pins).expect("done");
        assert!(!pins.join("alone-9-1").exists() && pins.join("alone-not-ours").exists());
        fs::remove_dir_all(&pins).expect("removed");
    }
}
