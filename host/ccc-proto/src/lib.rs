// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Wire layout of the virtio congestion control coupling device (virtio-ccc).
//!
//! [`wire`] mirrors `guest/include/virtio_ccc.h`: the same structures and
//! constants, their sizes and offsets asserted when this crate is compiled and
//! compared with a C compiler's by its tests.  [`shared`] reads and writes what
//! a guest changes at the same time.  [`check`] turns what a guest wrote into
//! what the engine takes, or says why it does not.
//!
//! # Threat model
//! Every byte a guest can write is hostile.  A slot is copied once, under its
//! sequence count, and only the copy is looked at; every field of the copy is
//! range-checked or clamped before it leaves this crate.
pub mod check;
pub mod shared;
pub mod wire;

pub use check::{CheckedReport, ReportError};
pub use shared::{GRANT_LINE_WORDS, REPORT_WORDS, Torn, read_report, write_grant_line};
