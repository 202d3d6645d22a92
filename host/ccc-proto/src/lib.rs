// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Wire layout of the virtio congestion control coupling device (virtio-ccc).
//!
//! [`wire`] mirrors `guest/include/virtio_ccc.h`: the same structures and
//! constants, their sizes and offsets asserted when this crate is compiled and
//! compared with a C compiler's by its tests.  The functions read and write what
//! a guest changes at the same time, and [`wire::Report::check`] turns what it
//! wrote into what the engine takes, or says why it does not.
//!
//! # Threat model
//! Every byte a guest can write is hostile.  A slot is copied once, under its
//! sequence count, and only the copy is looked at; every field of the copy is
//! range-checked or clamped before it leaves this crate.
mod shared;
pub mod stranger;
pub mod wire;

pub use shared::{
    CheckedReport, GRANT_LINE_WORDS, READ_ATTEMPTS, ReportError, Torn, read_instance, read_report,
    write_extent_status, write_grant_line, write_slot_grant,
};

/// Grant lines of a VM: a device takes no extent with more, and says so (`max_grant_lines`).
pub const MAX_GRANT_LINES: u32 = 16;
