// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! vhost-user back end of the virtio congestion control coupling device.
//!
//! One daemon serves all VMs of a host, because coupling is about what they share.
//! Its rooms, each of which knows those in front of it only:
//! `logging` is the log; `event_loop` waits in one thread; `virtio` is what any virtio device has;
//! `device` is this one: extents of tables the driver offered, doorbell messages,
//! flows in slots, grant lines; `vhost_user` speaks with the front ends;
//! `settings` are the operator's; `tap` is what the host itself counts of a VM and
//! does to it; `coupling` joins devices to the engine, which
//! knows nothing of virtio, by the settings; `admin` reads and changes them; and
//! [`daemon`] serves it all.
//!
//! # Threat model
//! A guest controls its memory, its queues and all messages; a front end also
//! what arrives on its socket.  Neither can make the daemon read or write
//! outside the memory it was given, wait for one of them, spend more than a
//! bounded time on one VM's turn, fill its log, or see another VM's memory.  A
//! front end that shrinks the file behind its guest's memory is disconnected
//! (`virtio::fault`).  In virtual time front ends are trusted to answer.
mod admin;
pub mod args;
mod by_number;
mod coupling;
pub mod daemon;
mod device;
mod event_loop;
pub mod logging;
mod settings;
mod tap;
mod vhost_user;
mod virtio;

pub use admin::http::routes::ROUTES;

/// What fuzz targets and the law's model see beside the daemon.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use prometheus_client::metrics::histogram::Histogram;

    pub use crate::{
        admin::authorization::Peer,
        admin::executor::{Executor, Guest, Guests},
        admin::http::routes::Request,
        coupling::Coupling,
        device::budget::Budget,
        device::counters::Counters,
        device::engine::{Context, FlowEngine, RemapReason},
        device::extents::{Extent, Extents},
        device::{Device, Identity},
        event_loop::busy_poll::Counts,
        event_loop::poll::Poller,
        settings::Settings,
        settings::config,
        settings::state::State,
        tap::watch::{Seen, Verdict, Watch, Watched},
        tap::watches::PERIOD_US,
        vhost_user::backend::{Backend, FEATURES},
        virtio::chain::words,
        virtio::mapping::Mapping,
        virtio::memory::Memory,
    };
}
