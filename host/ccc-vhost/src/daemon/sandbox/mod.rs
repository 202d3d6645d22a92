// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the daemon takes from itself before anybody connects: files it never opens, and
//! system calls it never makes.
//!
//! A guest that found a fault in the daemon would have its memory, and with it every other
//! guest's; with this it has nothing more of the host than that.  systemd's unit takes much
//! of the same, and nothing where the daemon runs without systemd.
pub mod calls;
pub mod files;

use std::path::{Path, PathBuf};

use crate::settings::{Sandbox, Settings};

/// Where sockets of VMs may be made that come while the daemon runs.
const SOCKETS: &str = "/run/ccc";

/// Directories in which sockets may be made from now on: those that have some, and ours.
pub fn socket_directories(settings: &Settings) -> Vec<PathBuf> {
    let sockets = settings.vms.values().map(|vm| vm.socket.as_path());
    let control = settings.daemon.control.as_deref();
    let mut directories: Vec<PathBuf> = sockets
        .chain(control)
        .filter_map(Path::parent)
        // The directory the daemon was started in has no name here.
        .map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
        .chain([Path::new(SOCKETS)])
        .filter(|directory| directory.is_dir())
        .map(Path::to_owned)
        .collect();
    directories.sort();
    directories.dedup();
    directories
}

/// Takes files away, of this thread and those it starts: before there are others.
pub fn confine_files(settings: &mut Settings) {
    // What calls are made is told, and none refused: so it is with files.
    if settings.daemon.sandbox != Sandbox::On {
        return;
    }
    let sockets = socket_directories(settings);
    let state = settings.daemon.state.as_deref().and_then(Path::parent);
    let port = settings.daemon.metrics.map(|address| address.port());
    match files::confine(&files::Needs { sockets: &sockets, state, port }) {
        Ok(files::Confined::Fully) => log::info!("sandbox: files by landlock"),
        Ok(files::Confined::Partly) => {
            log::info!("sandbox: files by landlock, as far as this kernel has it");
        }
        Ok(files::Confined::Not) => {
            // A container that refuses the calls looks as a kernel without them.
            log::warn!(
                "sandbox: files are not confined: this kernel has no landlock, or what the daemon \
                 runs in refuses it"
            );
            return;
        }
        Err(error) => {
            log::warn!("sandbox: files are not confined: {error}");
            return;
        }
    }
    settings.socket_directories = Some(sockets);
}

/// Takes system calls away, of all threads: when there is nothing left to set up.
pub fn confine_calls(sandbox: Sandbox) {
    let action = match sandbox {
        Sandbox::On => calls::Otherwise::Refuse,
        Sandbox::Log => calls::Otherwise::Log,
        Sandbox::Off => {
            log::warn!("sandbox: off, as [daemon] sandbox says");
            return;
        }
    };
    match calls::confine_all_threads(action) {
        Ok(()) => log::info!("sandbox: system calls by seccomp ({sandbox})"),
        Err(error) => log::warn!("sandbox: system calls are not confined: {error}"),
    }
}
