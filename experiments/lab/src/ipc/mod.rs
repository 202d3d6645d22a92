// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Talk with the programs of a run over Unix sockets.

pub mod inbox;
pub mod poller;
