// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the host itself sees of each VM, and does to one that takes what is others'.
//!
//! A guest's reports are its own words.  The interface through which all its packets come
//! counts them, whatever it says, and a shaper there holds it to its share, whatever it
//! does.  Nothing here is done for each packet, and a group that does not ask for it costs
//! nothing.
//!
//! [`watch`] judges VMs of a group and says at which rates to hold them: arithmetic,
//! without clock or kernel; [`watches`] are those of all groups, and what is held by them.
//! [`uplink`] says which queues VMs are to have where all of them leave the host, and
//! [`uplinks`] keeps what came of that; [`queues`] are those of the kernel, by [`htb`].
//! [`host`] is what counts and holds: the [`kernel`], asked from a [`thread`], or the
//! [`laboratory`]; [`link`] tells which interfaces can be taps, or uplinks.
mod capacity;
pub mod host;
mod htb;
pub mod kernel;
pub mod laboratory;
pub mod link;
mod netlink;
mod queues;
mod recent;
mod requests;
pub mod thread;
pub mod uplink;
pub mod uplinks;
pub mod watch;
pub mod watches;
mod witnesses;
