// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is wrong with a configuration on this host, though it is well formed.
use std::{os::unix::fs::FileTypeExt, path::Path};

use ccc_settings::Enforce;
use nix::unistd::User;
use rustix::process::geteuid;

use crate::{
    admin::authorization::{Authorization, AuthorizationError},
    logging::with_cause,
    settings::{DaemonSettings, Settings, state::State},
    tap::kernel,
    vhost_user::listener::ListenError,
};

/// Users that QEMU runs as, by distribution.
const QEMU_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

/// Who may use the control socket, by the configuration.
pub fn authorization(daemon: &DaemonSettings) -> Result<Authorization, AuthorizationError> {
    Authorization::new(daemon.operators.as_deref(), daemon.readers.as_deref())
}

/// All that would keep the daemon from serving.
pub fn faults(settings: &Settings) -> Vec<String> {
    let vms = settings.vms.values();
    let sockets = vms.map(|vm| (format!("VM {}", vm.name), &vm.socket));
    let control = settings.daemon.control.iter().map(|path| ("control".to_owned(), path));
    let mut faults: Vec<String> = sockets
        .chain(control)
        .filter_map(|(whose, path)| Some(format!("{whose}: {}", with_cause(&socket(path).err()?))))
        .collect();
    if let Err(error) = authorization(&settings.daemon) {
        faults.push(with_cause(&error));
    }
    if let Some((false, told)) = state_damage(settings) {
        faults.push(told);
    }
    faults
}

/// What is wrong with the state file, and whether it is one at all: then the daemon goes on
/// with what can be read.
fn state_damage(settings: &Settings) -> Option<(bool, String)> {
    let path = settings.daemon.state.as_deref()?;
    let (state, damage) = State::load_readable(path);
    // What is left out is told in the log.
    state.apply(&mut settings.clone());
    damage.map(|error| (path.is_file(), with_cause(&error)))
}

/// What is otherwise than the operator may think.
pub fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = warnings_of_settings(settings);
    if let Some((true, told)) = state_damage(settings) {
        warnings.push(format!("{told}; the daemon goes on with what can be read of it"));
    }
    warnings
}

/// The same of the settings alone: who serves reads the state file in any case, and tells of it.
pub fn warnings_of_settings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(control) = &settings.daemon.control {
        let dir = |path: &Path| path.parent().map(Path::to_owned);
        let beside = settings.vms.values().find(|vm| dir(&vm.socket) == dir(control));
        if let Some(vm) = beside {
            warnings.push(format!(
                "the control socket is in the directory of VM {}'s socket, which QEMU may enter; \
                 give it one of its own, such as /run/ccc/control",
                vm.name
            ));
        }
    }
    warnings.extend(settings.never_found());
    let enforcing = settings.groups.iter().filter(|g| g.settings.enforce == Enforce::On);
    warnings.extend(enforcing.filter_map(|group| kernel::powerless(&group.name)));
    let own = geteuid().as_raw();
    let is_own = |name: &&&str| {
        User::from_name(name).is_ok_and(|user| user.is_some_and(|user| user.uid.as_raw() == own))
    };
    if let Some(name) = QEMU_USERS.iter().find(is_own) {
        warnings.push(format!(
            "the daemon runs as `{name}`, so every QEMU of the host may operate it; run it as a \
             user of its own"
        ));
    }
    warnings
}

/// A socket could be made there, or is one that could be replaced.
fn socket(path: &Path) -> Result<(), ListenError> {
    ListenError::no_directory(path)?;
    match path.symlink_metadata() {
        Ok(there) if !there.file_type().is_socket() => Err(ListenError::NoSocket(path.to_owned())),
        _ => Ok(()),
    }
}
