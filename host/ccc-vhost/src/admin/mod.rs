// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators ask for while the daemon runs, and how they are answered.
pub mod access;
pub mod api;
pub mod control;
pub mod operate;
