// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is wrong with a configuration on this host, though it is well formed.
use std::{
    io::{self, ErrorKind},
    net::TcpListener,
    os::unix::fs::FileTypeExt,
    path::Path,
};

use ccc_settings::Enforce;
use nix::unistd::User;
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    process::geteuid,
};

use super::interfaces;
use crate::{
    admin::authorization::{Authorization, AuthorizationError},
    admin::http,
    logging::with_cause,
    settings::{
        DaemonSettings, Settings, Vm,
        state::{self, State, StateError},
    },
    tap::kernel,
    vhost_user::listener::{self, ListenError},
};

/// Users that QEMU runs as, by distribution.
const QEMU_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

/// Who may use the control socket, by the configuration.
pub fn authorization(daemon: &DaemonSettings) -> Result<Authorization, AuthorizationError> {
    Authorization::new(daemon.operators.as_deref(), daemon.readers.as_deref())
}

/// All that keeps the daemon from serving, whether it is asked or starts.  What a running
/// daemon has is none of it, for one may be asked beside that.
pub fn faults(settings: &Settings, has_control: bool) -> Vec<String> {
    let daemon = &settings.daemon;
    let control = daemon.control.as_deref().filter(|_| !has_control);
    let mut faults: Vec<String> = control
        .and_then(|path| socket(path).err())
        .map(|error| format!("control: {}", with_cause(&error)))
        .into_iter()
        .collect();
    let (operators, readers) = (daemon.operators.as_deref(), daemon.readers.as_deref());
    for group in [Authorization::new(operators, None), Authorization::new(None, readers)] {
        faults.extend(group.err().map(|error| with_cause(&error)));
    }
    faults
}

/// What is otherwise than the operator may think, and what the daemon goes on without.
pub fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = warnings_of_settings(settings);
    let mut settings = settings.clone();
    if let Some(path) = settings.daemon.state.clone() {
        let (mut state, damage) = State::load_readable(&path);
        let unwritable = || {
            let error = may_write(&path).err()?;
            Some(unkept(&path, &format!("cannot write {}: {error}", path.display())))
        };
        let told = damage.map(|error| damaged(&path, &error)).or_else(unwritable);
        warnings.extend(told);
        // What is left out is told in the log.
        state.apply(&mut settings);
    }
    for vm in settings.vms.values() {
        let unserved = socket(&vm.socket).err().map(|error| with_cause(&error));
        let unserved = unserved.map(|why| format!("VM {}: {why}; the others are served", vm.name));
        warnings.extend(unserved);
    }
    warnings.extend(interfaces::warnings(&settings));
    warnings.extend(without_metrics(&settings.daemon));
    warnings
}

/// A VM's socket is where the control socket is.
pub fn beside_control(daemon: &DaemonSettings, vm: &str, socket: &Path) -> Option<String> {
    let is_beside = socket.parent() == daemon.control.as_deref()?.parent();
    is_beside.then(|| {
        format!(
            "the control socket is in the directory of VM {vm}'s socket, which QEMU may enter; give \
             each one of its own, such as /run/ccc/control and /run/ccc/vm"
        )
    })
}

/// What is said of a state file that cannot be read, or not all of it.
pub fn going_on(why: &str) -> String {
    format!("{why}; the daemon goes on with what can be read of it")
}

/// What is said of one that is not ours, or cannot be written.
pub fn unkept(path: &Path, why: &str) -> String {
    let then = match may_write(path) {
        Ok(()) => "a second daemon may take it meanwhile",
        Err(_) => "until it can be written, changes are in force, and lost at the next start",
    };
    format!("{why}; {then}")
}

/// The same of all that may be wrong with one.
fn damaged(path: &Path, error: &StateError) -> String {
    match error {
        StateError::NoDirectory { .. } => unkept(path, &error.to_string()),
        _ => going_on(&with_cause(error)),
    }
}

/// Nobody can listen where monitoring systems are to connect.
fn without_metrics(daemon: &DaemonSettings) -> Option<String> {
    let address = daemon.metrics?;
    let error = TcpListener::bind(address).err()?;
    // It may be the daemon's that runs.
    let is_taken = error.kind() == ErrorKind::AddrInUse;
    let runs = is_taken && daemon.control.as_deref().is_some_and(listener::is_served);
    (!runs).then(|| http::no_metrics(address, &error))
}

/// The same of the settings alone: who serves reads the state file in any case, and tells of it.
pub fn warnings_of_settings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    let beside = |vm: &Vm| beside_control(&settings.daemon, &vm.name, &vm.socket);
    warnings.extend(settings.vms.values().find_map(beside));
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
        _ => may_write(path).map_err(|error| ListenError::bind(path, error)),
    }
}

/// A file could be made there by this user.
fn may_write(path: &Path) -> io::Result<()> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, state::directory(path), access, AtFlags::EACCESS)?)
}
