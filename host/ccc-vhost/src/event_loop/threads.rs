// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Threads and their channels: the standard library's, or shuttle's, which runs threads in
//! one order after the other (`make shuttle`).
#[cfg(all(test, feature = "shuttle"))]
pub use shuttle::{sync::mpsc, thread};
#[cfg(not(all(test, feature = "shuttle")))]
pub use std::{sync::mpsc, thread};
