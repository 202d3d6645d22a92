// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! File systems, names, modules, sysctls and programs of a guest.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, setrlimit};

use super::output::WORK;
use crate::error::{Context, LabError, Result};

/// Where programs are.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Most descriptors.
const DESCRIPTORS: u64 = 65_536;
/// Most threads; the kernel's own idea follows the little memory it has.
const THREADS: &str = "32768";

/// Mounts what the guest needs. The root is the machine's own, read-only.
pub fn mount_all() -> Result<()> {
    mount_one("proc", "/proc", "proc", None)?;
    mount_one("tmpfs", "/run", "tmpfs", None)?;
    fs::create_dir(WORK).on("making", Path::new(WORK))?;
    // The kernel's own current directory is the run's working directory.
    mount_one("lab", WORK, "hostfs", Some("/proc/self/cwd"))
}

/// Mounts the kernel's own sysfs over the machine's.
pub fn mount_sysfs() -> Result<()> {
    mount_one("sysfs", "/sys", "sysfs", None)
}

fn mount_one(source: &str, target: &str, kind: &str, data: Option<&str>) -> Result<()> {
    mount(Some(source), target, Some(kind), MsFlags::empty(), data)
        .context(|| format!("mounting {kind} on {target}"))
}

/// Lets this program have a descriptor and a thread for each connection.
pub fn raise_limits() -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)
        .context(|| "raising the number of descriptors".into())?;
    set_sysctl("kernel.threads-max", THREADS)
}

/// Sets the host name.
pub fn set_host_name(name: &str) -> Result<()> {
    nix::unistd::sethostname(name).context(|| format!("setting the host name {name}"))
}

/// The kernel's release.
pub fn release() -> Result<String> {
    let names = nix::sys::utsname::uname().context(|| "uname".into())?;
    Ok(names.release().to_string_lossy().into_owned())
}

/// Loads a kernel module of the run with these parameters.
pub fn load_module(name: &str, parameters: &str) -> Result<()> {
    let path = Path::new(WORK).join(name);
    let file = File::open(&path).on("opening", &path)?;
    let parameters = CString::new(parameters).context(|| "module parameters".into())?;
    finit_module(&file, &parameters, ModuleInitFlags::empty()).on("loading", &path)
}

/// Sets a sysctl of the calling thread's network namespace.
pub fn set_sysctl(name: &str, value: &str) -> Result<()> {
    let path = sysctl_path(name);
    fs::write(&path, value).context(|| format!("setting {name} to '{value}'"))
}

/// Reads a sysctl of the calling thread's network namespace.
pub fn sysctl(name: &str) -> Result<String> {
    let path = sysctl_path(name);
    Ok(fs::read_to_string(&path).on("reading", Path::new(&path))?.trim().replace('\t', " "))
}

fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Runs a program with `input`; returns its output.
pub fn program(name: &str, arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(name)
        .args(arguments)
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| format!("starting {name}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).context(|| format!("writing to {name}"))?;
    }
    let output = child.wait_with_output().context(|| format!("waiting for {name}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::protocol(name, format!("{} ({reason})", output.status)))
}

/// Runs a batch of `ip` or `tc` in a namespace.
pub fn batch(program_name: &str, namespace: Option<&str>, commands: &str) -> Result<String> {
    let place: &[&str] = &namespace.map_or(vec![], |n| vec!["-n", n]);
    let output = program(program_name, &[place, &["-batch", "-"]].concat(), commands)?;
    Ok(output.trim().to_owned())
}
