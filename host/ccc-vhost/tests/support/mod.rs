// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The real daemon, a front end with a driver in it, and who asks at the control socket.
#![allow(dead_code, clippy::unwrap_used)]
pub mod controller;
pub mod daemon;
pub mod driver;
pub mod frontend;
pub mod operator;
pub mod space;
pub mod users;
