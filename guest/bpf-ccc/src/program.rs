// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The BPF program in the kernel, pinned, so that connections keep it and their tables
//! whatever becomes of this process.
use std::{
    ffi::OsStr,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    mem::MaybeUninit,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use libbpf_rs::{
    ErrorKind, Link, MapCore, MapHandle, MapMut, MapType, OpenMapMut, PrintLevel,
    btf::{Btf, types::Struct},
    skel::{OpenSkel, SkelBuilder},
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/ccc.skel.rs"));
}

use crate::lent::Layout;

// Names of what is pinned.
const RENO: &str = "reno";
const CUBIC: &str = "cubic";
const CHOOSE: &str = "choose";

/// BPF_LOG_LEVEL1: each instruction that the verifier has looked at, on the last way to it.
const VERIFIER_LOG: u32 = 1;

/// The program as it was compiled: another one has other pins.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ccc.bpf.o"));

/// The maps of the program.
#[derive(Debug)]
pub struct Program {
    /// Of this process alone for as long as it has this.
    _alone: File,
    /// Tables by the tenants' numbers.
    pub tables: MapHandle,
    /// Numbers of tenants by their cgroups.
    pub cgroups: MapHandle,
    /// Numbers of tenants by the cookies of their network namespaces.
    pub netns: MapHandle,
    /// Messages for the tenants' devices.
    pub messages: MapHandle,
    /// How the part of a table is laid out that is lent.
    pub layout: Layout,
    /// Bytes of a table.
    pub table_bytes: usize,
    /// Tenants there can be.
    pub tenants: u32,
}

/// The pins of this program in `pins`.
fn directory(pins: &Path) -> PathBuf {
    let mut hash = DefaultHasher::new();
    OBJECT.hash(&mut hash);
    pins.join(format!("{:016x}", hash.finish()))
}

fn quiet(level: PrintLevel, text: String) {
    let level = if level == PrintLevel::Warn { log::Level::Warn } else { log::Level::Debug };
    log::log!(level, "{}", text.trim_end());
}

impl Program {
    /// The program of earlier pins, or loaded and pinned now.
    pub fn open(pins: &Path, cgroup_root: &Path) -> Result<Program> {
        libbpf_rs::set_print(Some((PrintLevel::Debug, quiet)));
        let mut storage = MaybeUninit::uninit();
        let open = skeleton::CccSkelBuilder::default().open(&mut storage)?;
        let rodata = open.maps.rodata_data.as_deref().context("program without a layout")?;
        let said = &rodata.ccc_layout;
        let layout = Layout {
            slots: said.slots,
            lines: said.lines,
            grants_offset: said.grants_offset as usize,
            bytes: said.control_offset as usize,
        };
        let (tenants, table_bytes) = (said.tenants, said.table_bytes as usize);
        let directory = directory(pins);
        fs::create_dir_all(pins).with_context(|| no_bpffs(pins))?;
        let alone = lock(pins)?;
        if !directory.join("complete").exists() {
            remove(pins)?;
            fs::create_dir(&directory).with_context(|| no_bpffs(&directory))?;
            load(open, &directory, cgroup_root)?;
        }
        let map = |name: &str| {
            let path = directory.join(name);
            MapHandle::from_pinned_path(&path).with_context(|| {
                format!("cannot use {}; ccc-bpf unload removes it", path.display())
            })
        };
        Ok(Program {
            _alone: alone,
            tables: map("tables")?,
            cgroups: map("cgroups")?,
            netns: map("netns")?,
            messages: map("messages")?,
            layout,
            table_bytes,
            tenants,
        })
    }
}

fn no_bpffs(directory: &Path) -> String {
    format!(
        "cannot make {}; it has to be in a bpffs (mount -t bpf bpf /sys/fs/bpf), and this needs \
         CAP_BPF and CAP_NET_ADMIN",
        directory.display()
    )
}

fn load(mut open: skeleton::OpenCccSkel<'_>, directory: &Path, cgroup_root: &Path) -> Result<()> {
    let cubic = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .is_ok_and(|names| names.split_whitespace().any(|name| name == "cubic"));
    open.maps.ccc_cubic.set_autocreate(cubic)?;
    open.maps.rodata_data.as_deref_mut().context("program without constants")?.ccc_has_cubic =
        cubic.into();
    let linked = has_struct_ops_links()?;
    if !linked {
        without_link(&mut open.maps.ccc_reno)?;
        without_link(&mut open.maps.ccc_cubic)?;
    }
    if log::log_enabled!(log::Level::Debug) {
        for mut program in open.open_object_mut().progs_mut() {
            program.set_log_level(VERIFIER_LOG);
        }
    }
    let mut skel = open.load().map_err(|error| {
        let why = why_not(error.kind());
        anyhow::Error::new(error).context(why)
    })?;
    let root = File::open(cgroup_root)?;
    let choose = skel.progs.ccc_choose.attach_cgroup(root.as_raw_fd());
    let mut links = vec![
        (RENO, register(&mut skel.maps.ccc_reno).context("ccc_reno cannot be registered")?),
        (CHOOSE, choose.with_context(|| format!("no program at {}", cgroup_root.display()))?),
    ];
    if cubic {
        links.push((CUBIC, register(&mut skel.maps.ccc_cubic)?));
    }
    skel.maps.ccc_tables.pin(directory.join("tables"))?;
    skel.maps.ccc_cgroups.pin(directory.join("cgroups"))?;
    skel.maps.ccc_netns.pin(directory.join("netns"))?;
    skel.maps.ccc_messages.pin(directory.join("messages"))?;
    for (name, link) in &mut links {
        link.pin(directory.join(*name))?;
        // Without links a registration is the map's, and no longer than this one unless told.
        if !linked && *name != CHOOSE {
            link.disconnect();
        }
    }
    // The last: what was cut short is begun anew.
    Ok(fs::create_dir(directory.join("complete"))?)
}

/// What to do about a program that the kernel does not take.
fn why_not(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => {
            "the kernel lets this process load no program; expected root, or CAP_BPF, CAP_PERFMON and \
             CAP_NET_ADMIN, in the first user namespace, as no container has that is not privileged"
        }
        _ => {
            "the kernel does not take the program; expected Linux 6.1 or later with BTF \
             (CONFIG_DEBUG_INFO_BTF) and CONFIG_BPF_JIT, and no lockdown \"confidentiality\"; RUST_LOG=debug \
             shows the verifier's log"
        }
    }
}

/// Whether this kernel registers struct_ops by links, as Linux has since 6.4.
fn has_struct_ops_links() -> Result<bool> {
    let kernel = Btf::from_vmlinux().context(
        "the kernel has no BTF (/sys/kernel/btf/vmlinux); expected CONFIG_DEBUG_INFO_BTF",
    )?;
    Ok(kernel.type_by_name::<Struct<'_>>("bpf_struct_ops_link").is_some())
}

/// A link is all that its flags ask for.
fn without_link(map: &mut OpenMapMut<'_>) -> Result<()> {
    Ok(map.set_map_flags(0)?)
}

fn register(map: &mut MapMut<'_>) -> Result<Link> {
    Ok(map.attach_struct_ops()?)
}

/// Ends a registration that is its map's and not a link's.
fn unregister(pin: &Path) -> Result<()> {
    let name = pin.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if ![RENO, CUBIC].contains(&name) {
        return Ok(());
    }
    match MapHandle::from_pinned_path(pin) {
        Ok(map) if map.map_type() == MapType::StructOps => Ok(map.delete(&0u32.to_ne_bytes())?),
        _ => Ok(()),
    }
}

/// Whether a directory's name is one that [`directory`] gives.
fn is_ours(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Two would give out the same tables.
fn lock(pins: &Path) -> Result<File> {
    let file = File::open(pins).with_context(|| format!("cannot open {}", pins.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            bail!("another ccc-bpf (run or agent) uses {}; stop it first", pins.display())
        }
        result => result.with_context(|| format!("cannot lock {}", pins.display()))?,
    }
    Ok(file)
}

/// Removes all that earlier ones of us have pinned, unless one runs.  Connections go on as the
/// kernel's own algorithm does.
pub fn unload(pins: &Path) -> Result<()> {
    if !pins.exists() {
        return Ok(());
    }
    let _alone = lock(pins)?;
    remove(pins)?;
    match fs::remove_dir(pins) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
            bail!("cannot remove {}: {error}", pins.display())
        }
        _ => Ok(()),
    }
}

/// What earlier ones of us have pinned, and nothing else that is there.
fn remove(pins: &Path) -> Result<()> {
    for directory in fs::read_dir(pins)? {
        let directory = directory?.path();
        if !is_ours(&directory) {
            continue;
        }
        for pin in fs::read_dir(&directory)? {
            let pin = pin?;
            match pin.file_type()?.is_dir() {
                true => fs::remove_dir(pin.path())?,
                false => {
                    unregister(&pin.path())?;
                    fs::remove_file(pin.path())?;
                }
            }
        }
        fs::remove_dir(directory)?;
    }
    Ok(())
}

/// The number in an element of a map, if it has one.
pub fn number(map: &MapHandle, key: &[u8]) -> Result<Option<u32>> {
    let found = map.lookup(key, libbpf_rs::MapFlags::ANY)?;
    Ok(found.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_is_not_told_of_the_kernel() {
        assert!(why_not(ErrorKind::PermissionDenied).contains("CAP_BPF"));
        assert!(why_not(ErrorKind::InvalidInput).contains("CONFIG_DEBUG_INFO_BTF"));
    }

    #[test]
    fn what_others_have_pinned_stays() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-pins-{}", std::process::id()));
        let (ours, others) = (directory(&pins), pins.join("snap"));
        for directory in [&ours, &others] {
            fs::create_dir_all(directory).expect("done");
            fs::write(directory.join("map"), "").expect("done");
        }
        unload(&pins).expect("done");
        assert!(!ours.exists() && others.join("map").exists());
        fs::remove_dir_all(&others).expect("done");
        let running = lock(&pins).expect("alone");
        assert!(unload(&pins).is_err() && pins.exists());
        drop(running);
        unload(&pins).expect("done");
        assert!(!pins.exists());
    }
}
