// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The flows of a run: their two ends, and what writes to them.

mod churn;
mod churn_receiver;
pub mod cross;
mod cross_packets;
pub mod flood;
mod overload;
pub mod receiver;
pub mod sender;
mod socket;
mod tcp_info;
mod writer;
