// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The BPF program in the kernel, pinned, so that connections keep it and their tables
//! whatever becomes of this process.
use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::ErrorKind,
    mem::MaybeUninit,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use libbpf_rs::{
    MapCore, MapHandle, PrintLevel,
    skel::{OpenSkel, SkelBuilder},
};

#[allow(missing_docs, clippy::all)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/ccc.skel.rs"));
}

/// The program as it was compiled: another one has other pins.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ccc.bpf.o"));

/// How a table is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Slots of a tenant.
    pub slots: u32,
    /// Grant lines of a tenant.
    pub lines: u32,
    /// Tenants there can be.
    pub tenants: u32,
    /// Where the part begins that the daemon writes.
    pub grants_offset: usize,
    /// Where the part begins that is not the daemon's.
    pub control_offset: usize,
    /// Bytes in all.
    pub table_bytes: usize,
}

/// The maps of the program.
#[derive(Debug)]
pub struct Program {
    /// Tables by the tenants' numbers.
    pub tables: MapHandle,
    /// Numbers of tenants by their cgroups.
    pub cgroups: MapHandle,
    /// Numbers of tenants by the cookies of their network namespaces.
    pub netns: MapHandle,
    /// Messages for the tenants' devices.
    pub messages: MapHandle,
    /// How a table is laid out.
    pub layout: Layout,
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
            tenants: said.tenants,
            grants_offset: said.grants_offset as usize,
            control_offset: said.control_offset as usize,
            table_bytes: said.table_bytes as usize,
        };
        let directory = directory(pins);
        if !directory.join("complete").exists() {
            unload(pins)?;
            fs::create_dir_all(&directory).with_context(|| no_bpffs(&directory))?;
            load(open, &directory, cgroup_root)?;
        }
        let map = |name: &str| {
            let path = directory.join(name);
            MapHandle::from_pinned_path(&path).with_context(|| {
                format!("cannot use {}; ccc-bpf unload removes it", path.display())
            })
        };
        Ok(Program {
            tables: map("tables")?,
            cgroups: map("cgroups")?,
            netns: map("netns")?,
            messages: map("messages")?,
            layout,
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
    let mut skel = open.load().context(
        "the kernel does not take the program; expected Linux 6.1 or later with BTF \
         (CONFIG_DEBUG_INFO_BTF) and CONFIG_BPF_JIT; RUST_LOG=debug shows the verifier's log",
    )?;
    let root = fs::File::open(cgroup_root)?;
    let choose = skel.progs.ccc_choose.attach_cgroup(root.as_raw_fd());
    let mut links = vec![
        ("reno", skel.maps.ccc_reno.attach_struct_ops().context("ccc_reno cannot be registered")?),
        ("choose", choose.with_context(|| format!("no program at {}", cgroup_root.display()))?),
    ];
    if cubic {
        links.push(("cubic", skel.maps.ccc_cubic.attach_struct_ops()?));
    }
    skel.maps.ccc_tables.pin(directory.join("tables"))?;
    skel.maps.ccc_cgroups.pin(directory.join("cgroups"))?;
    skel.maps.ccc_netns.pin(directory.join("netns"))?;
    skel.maps.ccc_messages.pin(directory.join("messages"))?;
    for (name, link) in &mut links {
        link.pin(directory.join(name))?;
    }
    // The last: what was cut short is begun anew.
    Ok(fs::create_dir(directory.join("complete"))?)
}

/// Whether a directory's name is one that [`directory`] gives.
fn is_ours(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes all that earlier ones of us have pinned, and nothing else that is there.
/// Connections go on as the kernel's own algorithm does.
pub fn unload(pins: &Path) -> Result<()> {
    let Ok(directories) = fs::read_dir(pins) else { return Ok(()) };
    for directory in directories {
        let directory = directory?.path();
        if !is_ours(&directory) {
            continue;
        }
        for pin in fs::read_dir(&directory)? {
            let pin = pin?;
            match pin.file_type()?.is_dir() {
                true => fs::remove_dir(pin.path())?,
                false => fs::remove_file(pin.path())?,
            }
        }
        fs::remove_dir(directory)?;
    }
    match fs::remove_dir(pins) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => {
            bail!("cannot remove {}: {error}", pins.display())
        }
        _ => Ok(()),
    }
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
    fn what_others_have_pinned_stays() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-pins-{}", std::process::id()));
        let (ours, others) = (directory(&pins), pins.join("snap"));
        for directory in [&ours, &others] {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join("map"), "").unwrap();
        }
        unload(&pins).unwrap();
        assert!(!ours.exists() && others.join("map").exists());
        fs::remove_dir_all(&others).unwrap();
        unload(&pins).unwrap();
        assert!(!pins.exists());
    }
}
