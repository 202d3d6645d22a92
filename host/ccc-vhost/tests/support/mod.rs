// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The real daemon, and a front end with a driver in it.
#![allow(dead_code, clippy::unwrap_used)]
pub mod daemon;
pub mod driver;
pub mod frontend;
pub mod operator;
