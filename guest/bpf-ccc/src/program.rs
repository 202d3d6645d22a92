// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The BPF program in the kernel, pinned, so that connections keep it and their tables
//! whatever becomes of this process.
use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    mem::MaybeUninit,
    os::{fd::AsRawFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    ptr, thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use libbpf_rs::{
    ErrorKind, Link, MapCore, MapHandle, MapMut, OpenMapMut, PrintLevel,
    btf::{Btf, types::Struct},
    skel::{OpenSkel, SkelBuilder},
};
use rustix::fs::{AtFlags, statat};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/ccc.skel.rs"));
}

use crate::{
    alone::{self, Alone},
    hopeless::Hopeless,
    lent::Layout,
    mark::{self, digest},
    pins::{
        CGROUPS, CHOOSE, COMPLETE, CUBIC, MESSAGES, NETNS, OWNERS_ALONE, RENO, TABLES, in_bpffs,
        lock, no_bpffs, ours, remove,
    },
};

/// An algorithm that was unregistered has its name for a moment longer.
const NAME_TRIES: u32 = 2000;

/// BPF_LOG_LEVEL1: each instruction that the verifier has looked at, on the last way to it.
const VERIFIER_LOG: u32 = 1;

/// The program as it was compiled: another one has other pins.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ccc.bpf.o"));

/// The maps of the program.
#[derive(Debug)]
pub struct Program {
    /// The directory of pins: of this process alone for as long as it has this.
    root: File,
    /// What is pinned there, below it.
    pinned: Vec<PathBuf>,
    /// The tenants' tables.
    pub tables: Tables,
    /// Numbers of tenants by their cgroups.
    pub cgroups: MapHandle,
    /// Numbers of tenants by the cookies of their network namespaces.
    pub netns: MapHandle,
    /// Messages for the tenants' devices.
    pub messages: MapHandle,
    /// Connections of programs before.
    pub alone: Alone,
}

/// Where the tenants' tables are.
#[derive(Debug)]
pub struct Tables {
    /// Tables by the tenants' numbers.
    pub map: MapHandle,
    /// How the part of a table is laid out that is lent.
    pub layout: Layout,
    /// Bytes of a table.
    pub table_bytes: usize,
    /// Tenants there can be.
    pub tenants: u32,
}

/// The pins of this program in `pins`.
fn directory(pins: &Path) -> PathBuf {
    pins.join(digest(OBJECT))
}

/// What libbpf says goes to the log, most of it only if that is wanted.
pub fn quiet() {
    let say = |level, text: String| {
        let level = if level == PrintLevel::Warn { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "{}", text.trim_end());
    };
    libbpf_rs::set_print(Some((PrintLevel::Debug, say)));
}

impl Program {
    /// The program of earlier pins, or loaded and pinned now.
    pub fn open(pins: &Path, cgroup_root: &Path) -> Result<Program> {
        quiet();
        let mut storage = MaybeUninit::uninit();
        let open = skeleton::CccSkelBuilder::default().open(&mut storage)?;
        let said = said(&open)?;
        let directory = directory(pins);
        in_bpffs(pins)?;
        let mut begin = DirBuilder::new();
        let made = begin.recursive(true).mode(OWNERS_ALONE).create(pins);
        made.with_context(|| Hopeless(no_bpffs(pins)))?;
        let alone = lock(pins)?;
        let cubic = kernel_has_cubic();
        if !is_whole(&directory, cubic) {
            if directory.exists() {
                set_aside(&directory, pins, |kept| {
                    let kept = kept.and_then(|other| tables_number(other).ok());
                    tell_what_is_left(pins, &directory, kept.unwrap_or_default())
                })?;
            }
            load(open, pins, &directory, cgroup_root, cubic)?;
        }
        let map = |name: &str| {
            let path = directory.join(name);
            MapHandle::from_pinned_path(&path).with_context(|| {
                format!("cannot use {}; ccc-bpf unload removes it", path.display())
            })
        };
        Ok(Program {
            pinned: pinned(pins, &directory)?,
            root: alone,
            tables: Tables::new(map(TABLES)?, &said),
            cgroups: map(CGROUPS)?,
            netns: map(NETNS)?,
            messages: map(MESSAGES)?,
            alone: Alone::of(pins)?,
        })
    }
}

impl Program {
    /// Makes sure that nobody has removed what is pinned: it would go on serving, and new
    /// connections would have the host's own algorithm.
    pub fn check_pinned(&self) -> Result<()> {
        let is_there = |pin: &&PathBuf| statat(&self.root, pin.as_path(), AtFlags::empty()).is_ok();
        let Some(gone) = self.pinned.iter().find(|pin| !is_there(pin)) else { return Ok(()) };
        bail!(
            "somebody has removed the pin {}, so new connections are not coupled; a new start of \
             ccc-bpf mends that, as its unit does at once",
            gone.display()
        )
    }
}

fn kernel_has_cubic() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .is_ok_and(|names| names.split_whitespace().any(|name| name == "cubic"))
}

/// Whether a program was pinned there in whole, and nobody has removed a part of it since.
fn is_whole(directory: &Path, cubic: bool) -> bool {
    let has = |name: &str| directory.join(name).exists();
    has_same_layout(directory)
        && [RENO, CHOOSE, COMPLETE].into_iter().all(has)
        && (!cubic || has(CUBIC))
}

/// All in the directory, by their paths below that of the pins.
fn pinned(pins: &Path, directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.path().strip_prefix(pins)?.to_owned())).collect()
}

impl Tables {
    fn new(map: MapHandle, said: &skeleton::types::ccc_layout) -> Tables {
        let layout = Layout {
            slots: said.slots,
            lines: said.lines,
            grants_offset: said.grants_offset as usize,
            bytes: said.control_offset as usize,
        };
        Tables { map, layout, table_bytes: said.table_bytes as usize, tenants: said.tenants }
    }

    /// Those of the program that is pinned, whoever uses it: what is there is only read.
    pub fn pinned(pins: &Path) -> Result<Tables> {
        quiet();
        let others = ours(pins).unwrap_or_default();
        let there = others.iter().find(|other| has_same_layout(other)).with_context(|| {
            format!("no program of this version in {}; expected root, and one that ccc-bpf run or agent has loaded", pins.display())
        })?;
        let mut storage = MaybeUninit::uninit();
        let said = said(&skeleton::CccSkelBuilder::default().open(&mut storage)?)?;
        Ok(Tables::new(MapHandle::from_pinned_path(there.join(TABLES))?, &said))
    }
}

/// What the program says of its tables.
fn said(open: &skeleton::OpenCccSkel<'_>) -> Result<skeleton::types::ccc_layout> {
    Ok(open.maps.rodata_data.as_deref().context("program without a layout")?.ccc_layout)
}

/// Has what was cut short be a program before, if it may have the only pins of the tables.  Else it
/// is removed, once `tell` has had whose tables are kept, which may be the same.
fn set_aside(
    directory: &Path,
    pins: &Path,
    tell: impl FnOnce(Option<&Path>) -> Result<()>,
) -> Result<()> {
    if !has_same_layout(directory) {
        let others = ours(pins)?;
        tell(others.iter().find(|other| has_same_layout(other)).map(PathBuf::as_path))?;
        return remove(directory);
    }
    let aside = pins.join(digest(&[b"cut short", OBJECT].concat()));
    if aside.exists() {
        remove(&aside)?;
    }
    Ok(fs::rename(directory, aside)?)
}

/// Loads the program in place of earlier ones, whose maps it takes over if it can: connections
/// that have those go on with them, coupled.
fn load(
    mut open: skeleton::OpenCccSkel<'_>,
    pins: &Path,
    directory: &Path,
    cgroup_root: &Path,
    cubic: bool,
) -> Result<()> {
    let others = ours(pins)?;
    let before = others.iter().find(|other| has_same_layout(other));
    if let Some(before) = before {
        open.maps.ccc_tables.reuse_pinned_map(before.join(TABLES))?;
        open.maps.ccc_cgroups.reuse_pinned_map(before.join(CGROUPS))?;
        open.maps.ccc_netns.reuse_pinned_map(before.join(NETNS))?;
        open.maps.ccc_messages.reuse_pinned_map(before.join(MESSAGES))?;
        log::info!("goes on with the tables of {}", before.display());
    }
    open.maps.ccc_cubic.set_autocreate(cubic)?;
    let no_btf = "the kernel has no BTF (/sys/kernel/btf/vmlinux); expected CONFIG_DEBUG_INFO_BTF";
    let kernel = Btf::from_vmlinux().with_context(|| Hopeless(no_btf.to_owned()))?;
    let tx_start = has_tx_start(&kernel);
    if !tx_start {
        without_tx_start(open.struct_ops.ccc_reno_mut());
        without_tx_start(open.struct_ops.ccc_cubic_mut());
    }
    let constants = open.maps.rodata_data.as_deref_mut().context("program without constants")?;
    constants.ccc_has_cubic = cubic.into();
    constants.ccc_has_tx_start = tx_start.into();
    let linked = has_struct_ops_links(&kernel);
    if !linked {
        without_link(&mut open.maps.ccc_reno)?;
        without_link(&mut open.maps.ccc_cubic)?;
    }
    if log::log_enabled!(log::Level::Debug) {
        for mut program in open.open_object_mut().progs_mut() {
            program.set_log_level(VERIFIER_LOG);
        }
    }
    let mut skel = open.load().map_err(not_loaded)?;
    let tables = skel.maps.ccc_tables.info()?.info.id;
    others.iter().try_for_each(|other| tell_what_is_left(pins, other, tables))?;
    let root = File::open(cgroup_root)?;
    let choose = skel.progs.ccc_choose.attach_cgroup(root.as_raw_fd());
    fs::create_dir(directory).with_context(|| no_bpffs(directory))?;
    skel.maps.ccc_tables.pin(directory.join(TABLES))?;
    skel.maps.ccc_cgroups.pin(directory.join(CGROUPS))?;
    skel.maps.ccc_netns.pin(directory.join(NETNS))?;
    skel.maps.ccc_messages.pin(directory.join(MESSAGES))?;
    // From here on these have what those before had: who is cut short has not lost it.
    fs::create_dir(directory.join(mark::name()))?;
    // Their names are wanted now, and new connections have no algorithm of ours until then.
    others.iter().try_for_each(|other| remove(other))?;
    let mut links = vec![
        (RENO, register(&mut skel.maps.ccc_reno).with_context(|| name_is_taken(RENO))?),
        (CHOOSE, choose.with_context(|| format!("no program at {}", cgroup_root.display()))?),
    ];
    if cubic {
        let registered = register(&mut skel.maps.ccc_cubic);
        links.push((CUBIC, registered.with_context(|| name_is_taken(CUBIC))?));
    }
    for (name, link) in &mut links {
        link.pin(directory.join(*name))?;
        // Without links a registration is the map's, and no longer than this one unless told.
        if !linked && *name != CHOOSE {
            link.disconnect();
        }
    }
    // The last: what was cut short is begun anew.
    Ok(fs::create_dir(directory.join(COMPLETE))?)
}

/// Another attempt may find memory, or not be interrupted; else somebody has to do something.
fn not_loaded(error: libbpf_rs::Error) -> anyhow::Error {
    let kind = error.kind();
    let error = anyhow::Error::new(error);
    match kind {
        ErrorKind::OutOfMemory | ErrorKind::Interrupted | ErrorKind::WouldBlock => {
            error.context("the kernel cannot load the program now")
        }
        kind => error.context(Hopeless(why_not(kind).to_owned())),
    }
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
fn has_struct_ops_links(kernel: &Btf<'_>) -> bool {
    kernel.type_by_name::<Struct<'_>>("bpf_struct_ops_link").is_some()
}

/// Whether TCP has an operation for the first data that leaves, as Linux has since 7.1, and no
/// event.
fn has_tx_start(kernel: &Btf<'_>) -> bool {
    let operations = kernel.type_by_name::<Struct<'_>>("tcp_congestion_ops");
    operations.is_some_and(|operations| {
        operations.iter().any(|one| one.name == Some(OsStr::new("cwnd_event_tx_start")))
    })
}

/// libbpf takes no operation that the kernel lacks, and does not load a program that is none.
fn without_tx_start(operations: &mut skeleton::types::tcp_congestion_ops) {
    operations.cwnd_event_tx_start = ptr::null_mut();
}

/// A link is all that its flags ask for.
fn without_link(map: &mut OpenMapMut<'_>) -> Result<()> {
    Ok(map.set_map_flags(0)?)
}

fn name_is_taken(name: &str) -> String {
    format!(
        "ccc_{name} cannot be registered; if another ccc-bpf has, with other --pins: end it, and ccc-bpf \
         unload --pins DIR"
    )
}

fn register(map: &mut MapMut<'_>) -> Result<Link> {
    for _ in 0..NAME_TRIES {
        match map.attach_struct_ops() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return Ok(done?),
        }
    }
    Ok(map.attach_struct_ops()?)
}

/// Whether a program that was pinned there, in whole or not, can leave its maps to this one.
fn has_same_layout(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).exists();
    has(&mark::name()) && [TABLES, CGROUPS, NETNS, MESSAGES].into_iter().all(has)
}

/// The number of the tables that are pinned there.
fn tables_number(directory: &Path) -> Result<u32> {
    Ok(MapHandle::from_pinned_path(directory.join(TABLES))?.info()?.info.id)
}

/// Connections are not coupled again that have the tables of a program pinned there, unless these
/// are the ones with that number.
fn tell_what_is_left(pins: &Path, directory: &Path, kept: u32) -> Result<()> {
    let Ok(tables) = MapHandle::from_pinned_path(directory.join(TABLES)) else { return Ok(()) };
    let map = tables.info()?.info.id;
    if map == kept {
        return Ok(());
    }
    let has = |tenant: &u32| matches!(number(&tables, &tenant.to_ne_bytes()), Ok(Some(_)));
    let tenants = (0..tables.max_entries()).filter(has).count();
    if tenants > 0 {
        log::warn!(
            "tables of the program before are laid out otherwise: open connections of {tenants} \
             tenants go on alone until they end; new ones are coupled"
        );
        // Only doctor misses it.
        if let Err(error) = alone::note(pins, map, tenants) {
            log::warn!("cannot note connections that go on alone: {error}");
        }
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
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn who_may_not_is_not_told_of_the_kernel() {
        assert!(why_not(ErrorKind::PermissionDenied).contains("CAP_BPF"));
        assert!(why_not(ErrorKind::InvalidInput).contains("CONFIG_DEBUG_INFO_BTF"));
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let is_hopeless = |code| {
            let error = not_loaded(libbpf_rs::Error::from_raw_os_error(code));
            error.downcast_ref::<Hopeless>().is_some()
        };
        assert!(![libc::ENOMEM, libc::EINTR, libc::EAGAIN].into_iter().any(is_hopeless));
        assert!([libc::EPERM, libc::EINVAL].into_iter().all(is_hopeless));
    }

    #[test]
    fn maps_are_left_to_programs_of_their_layout_and_protocol() {
        let before = std::env::temp_dir().join(format!("ccc-bpf-left-{}", std::process::id()));
        let left_by = |mark: &str, maps: &[&str]| {
            let _ = fs::remove_dir_all(&before);
            for name in maps.iter().chain([&mark]) {
                fs::create_dir_all(before.join(name)).expect("made");
            }
            has_same_layout(&before)
        };
        let maps = [TABLES, CGROUPS, NETNS, MESSAGES];
        assert!(left_by(&mark::name(), &maps) && !left_by("layout-of-nobody", &maps));
        // It was being removed.
        assert!(!left_by(&mark::name(), &maps[1..]));
        fs::remove_dir_all(&before).expect("removed");
    }

    #[test]
    fn what_was_cut_short_leaves_its_maps_once_no_other_has_them() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-cut-{}", std::process::id()));
        let directory = directory(&pins);
        let kept = RefCell::new(None);
        let made = |directory: &Path, names: &[&str]| {
            let made = |name: &&str| fs::create_dir_all(directory.join(name));
            names.iter().try_for_each(made).expect("made");
        };
        let cut_short = |names: &[&str]| {
            made(&directory, names);
            let note = |other: Option<&Path>| {
                kept.replace(other.map(Path::to_owned));
                Ok(())
            };
            set_aside(&directory, &pins, note).expect("done");
            assert!(!directory.exists());
            ours(&pins).expect("read").iter().any(|other| has_same_layout(other))
        };
        let mark = mark::name();
        let all = [TABLES, CGROUPS, NETNS, MESSAGES, &mark, RENO];
        assert!(!cut_short(&all[..4]), "those before were still there");
        assert_eq!(kept.take(), None, "which had other tables");
        let before = pins.join(digest(b"before"));
        made(&before, &all);
        assert!(cut_short(&all[..4]));
        assert_eq!(kept.take().as_ref(), Some(&before), "which may have the same");
        fs::remove_dir_all(&before).expect("removed");
        assert!(cut_short(&all) && cut_short(&all), "again, too");
        assert!(cut_short(&all[..2]), "what is aside stays until another has it");
        assert_eq!(fs::read_dir(&pins).expect("read").count(), 1);
        fs::remove_dir_all(&pins).expect("removed");
    }

    #[test]
    fn what_lacks_a_part_is_not_whole() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-whole-{}", std::process::id()));
        let mark = mark::name();
        let all = [TABLES, CGROUPS, NETNS, MESSAGES, &mark, RENO, CHOOSE, CUBIC, COMPLETE];
        for name in all {
            fs::create_dir_all(pins.join(name)).expect("made");
        }
        assert!(is_whole(&pins, true));
        for name in all {
            fs::remove_dir(pins.join(name)).expect("removed");
            assert!(!is_whole(&pins, true), "{name}");
            assert_eq!(is_whole(&pins, false), name == CUBIC, "{name}");
            fs::create_dir(pins.join(name)).expect("made");
        }
        fs::remove_dir_all(&pins).expect("removed");
    }

    #[test]
    fn elsewhere_than_in_a_bpffs_nothing_is_made() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-none-{}/ccc", std::process::id()));
        let Err(error) = Program::open(&pins, Path::new("/")) else { panic!("opened") };
        assert!(error.to_string().contains("has to be in a bpffs"), "{error:#}");
        assert!(pins.parent().is_some_and(|parent| !parent.exists()));
    }
}
