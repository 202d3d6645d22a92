// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The table of a tenant: an array of one element, which the program finds by the tenant's
//! number.
use std::{
    ffi::c_int,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType,
    libbpf_sys::{BPF_F_MMAPABLE, bpf_map_create_opts},
};

use crate::{
    lent::Lent,
    program::{self, Tables},
};

// Of struct ccc_control in bpf/table.h, which begins behind what is lent.
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
    lent: Lent,
    lost: u64,
}

impl Table {
    /// A new one in the place of a number.
    pub fn create(tables: &Tables, number: u32, name: &str) -> Result<Table> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as u64,
            map_flags: BPF_F_MMAPABLE,
            ..Default::default()
        };
        let bytes = tables.table_bytes as u32;
        let map = MapHandle::create(MapType::Array, Some("ccc_table"), 4, bytes, 1, &options)
            .context("no memory for a table")?;
        let id = u64::from(map_id(&map)?);
        let table = Table::map(&map, number, tables)?;
        table.control::<AtomicU32>(TENANT).store(number, Ordering::Relaxed);
        for (index, byte) in name.bytes().take(NAME_BYTES - 1).enumerate() {
            table.control::<AtomicU8>(NAME + index).store(byte, Ordering::Relaxed);
        }
        table.control::<AtomicU64>(ID).store(id, Ordering::Release);
        let fd: c_int = map.as_fd().as_raw_fd();
        tables.map.update(&number.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        Ok(table)
    }

    /// Those that an earlier one of us has left, with the tenants' names.
    pub fn left(tables: &Tables) -> Result<Vec<(String, Table)>> {
        let mut left = Vec::new();
        for number in 0..tables.tenants {
            let Some(id) = program::number(&tables.map, &number.to_ne_bytes())? else {
                continue;
            };
            let table = Table::map(&MapHandle::from_map_id(id)?, number, tables)?;
            left.push((table.name(), table));
        }
        Ok(left)
    }

    fn map(map: &MapHandle, number: u32, tables: &Tables) -> Result<Table> {
        let file = map.as_fd().try_clone_to_owned()?;
        let lent = Lent::map(file, tables.layout, tables.table_bytes)?;
        Ok(Table { number, lent, lost: 0 })
    }

    fn control<T: crate::shared::Word>(&self, offset: usize) -> &T {
        self.lent.memory().at(self.lent.layout().bytes + offset)
    }

    fn name(&self) -> String {
        let byte = |index| self.control::<AtomicU8>(NAME + index).load(Ordering::Relaxed);
        let bytes = (0..NAME_BYTES).map(byte).take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// What of it the daemon has.
    pub fn lent(&self) -> &Lent {
        &self.lent
    }

    /// Grants are in force until then, on the monotonic clock; 0: they are not.
    pub fn lease(&self, until_us: u64) {
        self.control::<AtomicU64>(LEASE_US).store(until_us, Ordering::Relaxed);
    }

    /// Until when they are.
    pub fn leased_until_us(&self) -> u64 {
        self.control::<AtomicU64>(LEASE_US).load(Ordering::Relaxed)
    }

    /// The program has had no room for messages since this was last asked.
    pub fn take_lost(&mut self) -> bool {
        let lost = self.control::<AtomicU64>(LOST).load(Ordering::Relaxed);
        std::mem::replace(&mut self.lost, lost) != lost
    }

    /// Takes it away: its flows go on alone.
    pub fn remove(self, tables: &Tables) -> Result<()> {
        self.lease(0);
        Ok(tables.map.delete(&self.number.to_ne_bytes())?)
    }
}

fn map_id(map: &MapHandle) -> Result<u32> {
    Ok(libbpf_rs::MapInfo::new(map.as_fd())?.info.id)
}
