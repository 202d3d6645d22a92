// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! vhost-user back end of the virtio congestion control coupling device.
//!
//! One daemon serves all VMs of a host, because coupling is about what they
//! share.  The [`event_loop`] turns in one thread.  [`vhost_user`] speaks with
//! the front ends, [`virtio`] is what any virtio device has, and [`device`] is
//! the one behind a front end: extents of tables the driver offered, doorbell
//! messages, flows in slots, grant lines.  [`coupling`] joins devices to the
//! engine, which knows nothing of virtio, by the [`settings`] of the operator,
//! who reads and changes them through [`admin`].  [`daemon`] starts it all.
//!
//! # Threat model
//! A guest controls its memory, its queues and all messages; a front end also
//! what arrives on its socket.  Neither can make the daemon read or write
//! outside the memory it was given, wait for one of them, spend more than a
//! bounded time on one VM's turn, fill its log, or see another VM's memory.  A
//! front end that shrinks the file behind its guest's memory is disconnected
//! ([`virtio::fault`]).  In virtual time front ends are trusted to answer.
pub mod admin;
pub mod args;
pub mod coupling;
pub mod daemon;
pub mod device;
pub mod event_loop;
pub mod settings;
pub mod vhost_user;
pub mod virtio;
