// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Simulated time: who may run, and until when.

pub mod calendar;
pub mod message;
pub mod scheduler;
