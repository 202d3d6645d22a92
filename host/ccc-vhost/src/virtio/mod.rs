// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What any virtio device has: guest memory, virtqueues, descriptor chains.
//!
//! Sections are those of VIRTIO 1.3.  Only split virtqueues (2.7) are offered.
pub mod chain;
pub mod dirty;
pub mod fault;
pub mod mapping;
pub mod memory;
pub mod queue;
pub mod region;
