// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators ask for while the daemon runs, and how they are answered.
//!
//! `docs/openapi.yaml` describes it for them.  [`http`] turns a request into a [`Command`],
//! which goes through the [`channel`] to the event loop; the [`executor`] carries it out
//! there and answers with a [`Reply`].
//!
//! # Threat model
//! Whoever is let in ([`authorization`]) is an operator, or may only look, but programs err: a request can be
//! of any form and length, and a client may stop anywhere.  None of that reaches the event
//! loop, which sees whole commands only, a bounded number in a turn.
pub mod authorization;
pub mod channel;
mod command;
mod error;
pub mod executor;
pub mod http;
mod metrics;
mod reply;

pub use command::Command;
pub use error::ApiError;
pub use reply::{PollingView, Reply};
