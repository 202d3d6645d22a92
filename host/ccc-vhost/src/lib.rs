// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! vhost-user back end of the virtio congestion control coupling device.
//!
//! One daemon serves all VMs of a host, because coupling is about what they
//! share.  [`server`] is its event loop; a [`connection`] speaks vhost-user
//! with one front end; a [`device`] is the virtio device behind it: [`table`]s
//! the driver lent, [`doorbell`] messages, [`flows`] in slots, group [`lines`]
//! the device writes.  [`coupling`] joins them to the engine, which knows
//! nothing of virtio, by the [`settings`] of the operator.  Operators read and
//! change those by the [`api`] on the [`control`] socket, if they have
//! [`access`]; the [`keeper`] keeps what they changed, as [`state`].
//!
//! # Threat model
//! A guest controls its memory, its queues and all messages; a front end also
//! what arrives on its socket.  Neither can make the daemon read or write
//! outside the memory it was given, wait for one of them, spend more than a
//! bounded time on one VM's turn, fill its log, or see another VM's memory.  A
//! front end that shrinks the file behind its guest's memory is disconnected
//! ([`fault`]).  In virtual time front ends are trusted to answer.
pub mod access;
pub mod activation;
pub mod api;
pub mod args;
pub mod budget;
pub mod capabilities;
pub mod chain;
pub mod check;
pub mod clock;
pub mod config;
pub mod connection;
pub mod control;
pub mod counters;
pub mod coupling;
pub mod device;
pub mod dirty;
pub mod doorbell;
pub mod fault;
pub mod flows;
pub mod foreign;
pub mod handler;
pub mod inspect;
pub mod keeper;
pub mod limit;
pub mod lines;
pub mod listener;
pub mod lock;
pub mod memory;
pub mod message;
pub mod migration;
pub mod open_files;
pub mod operate;
pub mod poll;
pub mod scan;
pub mod server;
pub mod settings;
pub mod setup;
pub mod signals;
pub mod state;
pub mod table;
pub mod timers;
pub mod timetravel;
pub mod told;
pub mod values;
pub mod vring;
pub mod watchdog;
