// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What would keep a domain from starting, or from being coupled, found before.
use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use ccc_settings::{DEFAULT_GROUP, Fault, SocketPath, VmSettings, check_name};
use serde_json::json;
use thiserror::Error;

use super::{DomainError, Host, Wanted, xml::Domain};
use crate::{
    client::{ClientError, path},
    journal,
};

const DEVICE: &str = "vhost-user-ccc-pci";
/// A QEMU that waits for nobody has started and ended within that.
const QEMU_PATIENCE: Duration = Duration::from_millis(1000);
/// Where libvirt looks for hooks, and where its daemons say that they run.
const HOOKS: [&str; 2] = ["/etc/libvirt/hooks/qemu.d", "/etc/libvirt/hooks/qemu"];
const LIBVIRTDS: [&str; 2] = ["/run/virtqemud.pid", "/run/libvirtd.pid"];

/// Why a domain would not start, or not be coupled.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The daemon does not take its name.
    #[error("{0}; rename the domain with virsh domrename")]
    Name(Fault),
    /// Nobody could listen there.
    #[error("{0}; choose another with --vhost-socket")]
    Socket(Fault),
    /// Operators connect there.
    #[error("socket {0} is where operators connect; choose another with --vhost-socket")]
    Control(PathBuf),
    /// Its QEMU is another's.
    #[error(
        "{emulator} has no device {DEVICE} ({said}); use a QEMU with qemu-patches, in <emulator> of \
         the domain"
    )]
    Emulator {
        /// The program.
        emulator: PathBuf,
        /// What it says.
        said: String,
    },
}

impl Host<'_> {
    /// Refuses what could not start; what might go wrong later is told.
    pub(super) fn check(
        &self,
        name: &str,
        domain: &Domain,
        wanted: &Wanted,
    ) -> Result<(), DomainError> {
        check_name("name of domain", name).map_err(CheckError::Name)?;
        check_socket(&wanted.socket(name), self.daemon.socket())?;
        self.is_group(wanted)?;
        // Elsewhere are other programs and other files.
        if self.virsh.is_local() {
            has_device(domain)?;
            if let Some(missing) = hook_missing() {
                journal::say(&missing);
            }
        }
        Ok(())
    }

    /// A daemon that is not there may have it later.
    fn is_group(&self, wanted: &Wanted) -> Result<(), DomainError> {
        let group = wanted.settings.apply(&VmSettings::default()).group;
        let Some(group) = group.filter(|group| group != DEFAULT_GROUP) else { return Ok(()) };
        match self.daemon.get(&path("groups", &group)) {
            Ok(_) => Ok(()),
            Err(error @ ClientError::Told { status: 404, .. }) => Err(error.into()),
            Err(error) => {
                journal::say(&format!("not known whether there is a group {group}: {error}"));
                Ok(())
            }
        }
    }
}

fn check_socket(socket: &Path, control: &Path) -> Result<(), CheckError> {
    SocketPath::read("socket", Some(json!(socket))).map_err(CheckError::Socket)?;
    if socket == control || same_place(socket, control) {
        return Err(CheckError::Control(socket.to_owned()));
    }
    Ok(())
}

/// They are one file, however each is written.
fn same_place(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// The domain's QEMU knows the device.
fn has_device(domain: &Domain) -> Result<(), CheckError> {
    // libvirt says what it takes where the description says nothing.
    let Some(emulator) = domain.emulator() else { return Ok(()) };
    let asked = Command::new(&emulator)
        .args(["-device", &format!("{DEVICE},help")])
        .stdin(Stdio::null())
        .output();
    let said = match asked {
        // Whether it knows it or not, it ends well.
        Ok(asked) if asked.stdout.starts_with(DEVICE.as_bytes()) => return Ok(()),
        Ok(asked) => String::from_utf8_lossy(&asked.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(CheckError::Emulator { emulator, said })
}

/// The domain's QEMU starts without anybody at the device's socket.  Tried with one of
/// its kind that has nothing but the device: no version says so.
pub(super) fn starts_alone(domain: &Domain) -> bool {
    let Some(emulator) = domain.emulator() else { return false };
    let machine = domain.machine().unwrap_or_else(|| "q35".to_owned());
    let begun = Command::new(emulator)
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-S", "-m", "16"])
        .args(["-machine", &format!("{machine},accel=qtest,memory-backend=m")])
        .args(["-object", "memory-backend-memfd,id=m,size=16M,share=on"])
        .args(["-chardev", "socket,id=c,path=/nonexistent/ccc.sock,reconnect-ms=100"])
        .args(["-device", &format!("{DEVICE},chardev=c"), "-qmp", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    begun.is_ok_and(ends_when_told)
}

/// A QEMU that is up does as it is told; one that waits is ended.
fn ends_when_told(mut qemu: Child) -> bool {
    let quit = b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n";
    if let Some(mut stdin) = qemu.stdin.take() {
        // Few enough bytes for a pipe that nobody reads; one who is gone ended badly.
        let _ = stdin.write_all(quit);
        let began = Instant::now();
        while began.elapsed() < QEMU_PATIENCE {
            if let Ok(Some(ended)) = qemu.try_wait() {
                return ended.success();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // It may end by itself now, which is too late.
    let _ = qemu.kill();
    let _ = qemu.wait();
    false
}

/// What is wrong with libvirt's hook on this host, if anything.
fn hook_missing() -> Option<String> {
    hook_missing_in(HOOKS.map(Path::new), LIBVIRTDS.map(Path::new))
}

fn hook_missing_in(hooks: [&Path; 2], libvirtds: [&Path; 2]) -> Option<String> {
    let [several, one] = hooks;
    let several = fs::read_dir(several).into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(hook) = several.chain([one.to_owned()]).find(|hook| is_ours(hook)) else {
        return Some(
            "libvirt's hook is not installed, so the daemon is not told when the domain starts; \
             install libvirt/hooks/ccc as /etc/libvirt/hooks/qemu.d/ccc and restart libvirtd"
                .to_owned(),
        );
    };
    let since = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let installed = since(&hook)?.max(changed(&hook)?);
    let late = libvirtds.iter().filter_map(|pid| since(pid)).any(|started| started < installed);
    late.then(|| {
        let hook = hook.display();
        format!("{hook} is newer than libvirtd, which may not know it; restart libvirtd")
    })
}

/// When a file came to be as it is: packages keep the time at which it was written elsewhere.
fn changed(path: &Path) -> Option<SystemTime> {
    let file = fs::metadata(path).ok()?;
    let (seconds, nanos) = (file.ctime().try_into().ok()?, file.ctime_nsec().try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// It is a program that calls ours.
fn is_ours(hook: &Path) -> bool {
    let runs = fs::metadata(hook).is_ok_and(|file| file.permissions().mode() & 0o100 != 0);
    runs && fs::read_to_string(hook).is_ok_and(|text| text.contains("cccctl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o6_names_and_paths_that_cannot_be_served_are_told() {
        for name in ["web", "a.b_c-1", &"n".repeat(64)] {
            assert!(check_name("name", name).is_ok(), "{name}");
        }
        for name in ["", "with space", "ü", "a/b", &"n".repeat(65)] {
            assert!(check_name("name", name).is_err(), "{name}");
        }
        let control = Path::new("/run/ccc/control/control.sock");
        let long = format!("/{}", "s".repeat(107));
        for path in ["relative.sock", "", &long, "/run/../etc/s", "/run/./s", "/run//s", "/a\nb"] {
            let told = check_socket(Path::new(path), control);
            assert!(matches!(told, Err(CheckError::Socket(_))), "{path}");
        }
        assert!(check_socket(Path::new(&long[..107]), control).is_ok());
        assert!(matches!(check_socket(control, control), Err(CheckError::Control(_))));
    }

    #[test]
    fn o6_the_control_socket_by_another_name_is_the_control_socket() {
        let dir = tempfile::tempdir().expect("directory");
        let control = dir.path().join("control.sock");
        fs::write(&control, "").expect("written");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&control, &link).expect("linked");
        assert!(matches!(check_socket(&link, &control), Err(CheckError::Control(_))));
    }

    #[test]
    fn o5_a_hook_that_libvirt_does_not_call_is_told() {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        let (several, one, pid, none) = (at("qemu.d"), at("qemu"), at("pid"), at("none"));
        let told = || hook_missing_in([&several, &one], [&pid, &none]);
        assert!(told().expect("no hook").contains("not installed"));
        fs::create_dir(&several).expect("made");
        let hook = several.join("ccc");
        fs::write(&hook, "exec cccctl hook").expect("written");
        assert!(told().expect("not executable").contains("not installed"));
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
        assert_eq!(told(), None, "nobody knows when libvirtd was started");
        fs::write(&pid, "1").expect("written");
        assert_eq!(told(), None);
        let modified = |path: &Path, time: SystemTime| {
            let file = fs::File::options().write(true).open(path).expect("there");
            file.set_modified(time).expect("set");
        };
        let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
        modified(&hook, now + minute);
        assert!(told().expect("late").contains("restart libvirtd"));
        // As dpkg installs it: it was written when the package was made.
        modified(&hook, now - 100 * minute);
        modified(&pid, now - minute);
        assert!(told().expect("late").contains("restart libvirtd"));
    }
}
