// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The table of a tenant: an array of one element, which the program finds by the tenant's
//! number.
use std::{
    ffi::c_int,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use ccc_proto::wire;
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType,
    libbpf_sys::{BPF_F_MMAPABLE, bpf_map_create_opts},
};

use crate::{
    program::{self, Layout, Program},
    shared::Shared,
};

// Of struct ccc_control in bpf/table.h, from where the layout says it begins.
const ID: usize = 0;
const TENANT: usize = 8;
const LEASE_US: usize = 16;
const LOST: usize = 24;
const NAME: usize = 32;
const NAME_BYTES: usize = 72;

/// A table.
#[derive(Debug)]
pub struct Table {
    /// The tenant's number.
    pub number: u32,
    map: MapHandle,
    memory: Shared,
    layout: Layout,
    lost: u64,
}

impl Table {
    /// A new one in the place of a number.
    pub fn create(program: &Program, number: u32, name: &str) -> Result<Table> {
        let layout = program.layout;
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as u64,
            map_flags: BPF_F_MMAPABLE,
            ..Default::default()
        };
        let bytes = layout.table_bytes as u32;
        let map = MapHandle::create(MapType::Array, Some("ccc_table"), 4, bytes, 1, &options)
            .context("no memory for a table")?;
        let table = Table::map(map, number, layout)?;
        let id = u64::from(map_id(&table.map)?);
        table.control::<AtomicU32>(TENANT).store(number, Ordering::Relaxed);
        for (index, byte) in name.bytes().take(NAME_BYTES - 1).enumerate() {
            table.control::<AtomicU8>(NAME + index).store(byte, Ordering::Relaxed);
        }
        table.control::<AtomicU64>(ID).store(id, Ordering::Release);
        let fd: c_int = std::os::fd::AsRawFd::as_raw_fd(&table.map.as_fd());
        program.tables.update(&number.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        Ok(table)
    }

    /// Those that an earlier one of us has left, with the tenants' names.
    pub fn left(program: &Program) -> Result<Vec<(String, Table)>> {
        let mut left = Vec::new();
        for number in 0..program.layout.tenants {
            let Some(id) = program::number(&program.tables, &number.to_ne_bytes())? else {
                continue;
            };
            let table = Table::map(MapHandle::from_map_id(id)?, number, program.layout)?;
            left.push((table.name(), table));
        }
        Ok(left)
    }

    fn map(map: MapHandle, number: u32, layout: Layout) -> Result<Table> {
        let memory = Shared::map(map.as_fd(), layout.table_bytes)?;
        Ok(Table { number, map, memory, layout, lost: 0 })
    }

    fn control<T: crate::shared::Word>(&self, offset: usize) -> &T {
        self.memory.at(self.layout.control_offset + offset)
    }

    fn name(&self) -> String {
        let byte = |index| self.control::<AtomicU8>(NAME + index).load(Ordering::Relaxed);
        let bytes = (0..NAME_BYTES).map(byte).take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// What the daemon maps.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Grants are in force until then, on the monotonic clock; 0: they are not.
    pub fn lease(&self, until_us: u64) {
        self.control::<AtomicU64>(LEASE_US).store(until_us, Ordering::Relaxed);
    }

    /// The daemon has accepted the table.
    pub fn is_accepted(&self) -> bool {
        self.memory.at::<AtomicU32>(self.layout.grants_offset).load(Ordering::Acquire)
            == wire::EXTENT_ACCEPTED
    }

    /// It is offered anew: nothing is accepted.
    pub fn withdraw(&self) {
        let status = self.memory.at::<AtomicU32>(self.layout.grants_offset);
        status.store(wire::EXTENT_PENDING, Ordering::Release);
    }

    /// The program has had no room for messages since this was last asked.
    pub fn take_lost(&mut self) -> bool {
        let lost = self.control::<AtomicU64>(LOST).load(Ordering::Relaxed);
        std::mem::replace(&mut self.lost, lost) != lost
    }

    /// Takes it away: its flows go on alone.
    pub fn remove(self, program: &Program) -> Result<()> {
        self.lease(0);
        Ok(program.tables.delete(&self.number.to_ne_bytes())?)
    }
}

fn map_id(map: &MapHandle) -> Result<u32> {
    Ok(libbpf_rs::MapInfo::new(map.as_fd())?.info.id)
}
