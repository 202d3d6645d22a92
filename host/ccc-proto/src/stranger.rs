// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who comes to speak for a VM and knows tables of another revision only.
//!
//! It cannot, and says so before it goes, or an operator would see nobody come.  A front end
//! writes this at the beginning of the device's configuration space, by `SET_CONFIG` of vhost-user;
//! drivers only read there, and QEMU passes on nothing that a guest writes.
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U32};

/// The front end itself.
pub const FRONT_END: u32 = 0;
/// An agent in the guest, for which the front end would have spoken.
pub const AGENT: u32 = 1;

/// Who that is, and what it knows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Stranger {
    /// The revision of its tables.
    pub revision: U32,
    /// [`FRONT_END`] or [`AGENT`].
    pub who: U32,
}
