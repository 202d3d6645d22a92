// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Why a request is refused, and how HTTP says so.
use std::error::Error as _;

use ccc_settings::Fault;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    coupling::TrialError,
    settings::{SettingsError, writer::NotKept},
    vhost_user::listener::ListenError,
};

/// Why a request is refused.
#[derive(Debug, Error)]
pub enum ApiError {
    /// There is nothing at this path.
    #[error("nothing at `{0}`; docs/openapi.yaml lists what there is")]
    NoPath(String),
    /// There is nothing but metrics at this address.
    #[error("nothing at `{0}`: here is /metrics only; the rest is on the control socket")]
    NotHere(String),
    /// The path has no such method.
    #[error("invalid method: expected {allowed}, got {method}")]
    Method {
        /// What was asked for.
        method: String,
        /// What there is.
        allowed: String,
    },
    /// The body is too long.
    #[error("invalid body: expected at most {0} bytes, got more")]
    TooLarge(usize),
    /// The body is something else.
    #[error("invalid content-type: expected application/json, got another or none")]
    MediaType,
    /// The body is broken off.
    #[error("the body could not be read: {0}")]
    Body(String),
    /// The body is no JSON.
    #[error("invalid body: expected JSON, got {0}")]
    Json(String),
    /// What it asks of the settings cannot be done.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There can be no such trial.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// Nobody could connect.
    #[error("{error}{}", because(.error))]
    Listen {
        /// Why.
        #[from]
        error: ListenError,
    },
    /// The client may not do anything here.
    #[error("{0}")]
    Forbidden(String),
    /// There are as many connections as there may be of one user, or of all who may what it may.
    #[error(
        "uid {uid}: {} {most} connections to the control socket; close some, or try again later",
        if *.own { "this user has its" } else { "others who may do what it may have their" }
    )]
    NoPlace {
        /// Who has connected.
        uid: u32,
        /// They are all its own.
        own: bool,
        /// So many.
        most: usize,
    },
    /// More requests at once than the daemon takes.
    #[error("too many requests at once: nothing was done; try again")]
    Busy,
    /// The daemon is about to end.
    #[error("the daemon is stopping; try again when another runs")]
    Stopping,
    /// The change is in force and will be forgotten.
    #[error(transparent)]
    NotKept(#[from] NotKept),
}

fn because(error: &ListenError) -> String {
    error.source().map(|source| format!(": {source}")).unwrap_or_default()
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> ApiError {
        ApiError::Settings(fault.into())
    }
}

impl ApiError {
    /// Status code of the answer.
    pub fn status(&self) -> u16 {
        use SettingsError::{
            Configured, IsTenant, IsVm, NoGroup, NoVm, NotConfigured, OtherSocket, PlaceTaken,
        };
        match self {
            ApiError::Forbidden(_) => 403,
            ApiError::NoPath(_) | ApiError::NotHere(_) => 404,
            ApiError::Settings(NoVm { .. } | NoGroup { .. }) => 404,
            ApiError::Method { .. } => 405,
            ApiError::Settings(OtherSocket { .. } | Configured(_) | NotConfigured(_)) => 409,
            ApiError::Settings(IsTenant { .. } | IsVm(_) | PlaceTaken { .. }) => 409,
            ApiError::Trial(_) => 409,
            ApiError::TooLarge(_) => 413,
            ApiError::MediaType => 415,
            ApiError::NotKept(_) => 500,
            ApiError::Listen { error: ListenError::Files { .. } } => 503,
            ApiError::NoPlace { .. } | ApiError::Busy | ApiError::Stopping => 503,
            _ => 400,
        }
    }

    /// The field that is wrong, if it is one.
    pub fn field(&self) -> Option<&str> {
        match self {
            ApiError::Settings(SettingsError::Field(fault)) => Some(&fault.field),
            ApiError::Settings(SettingsError::OtherSocket { .. }) => Some("socket"),
            ApiError::Settings(
                SettingsError::IsTenant { .. }
                | SettingsError::IsVm(_)
                | SettingsError::PlaceTaken { .. },
            ) => Some("tenant"),
            ApiError::Listen { .. } => Some("socket"),
            _ => None,
        }
    }

    /// Body of the answer.
    pub fn body(&self) -> Value {
        json!({"error": self.to_string(), "field": self.field()})
    }
}
