// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What any virtio device has: guest memory, virtqueues, descriptor chains.
pub mod chain;
pub mod fault;
pub mod memory;
pub mod vring;
