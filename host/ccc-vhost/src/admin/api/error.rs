// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Why a request is refused.
use std::{error::Error as _, path::PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use crate::{settings::values::ValueError, vhost_user::listener::ListenError};

/// Why a request is refused.
#[derive(Debug, Error)]
pub enum ApiError {
    /// There is nothing at this path.
    #[error("nothing at `{0}`")]
    NoPath(String),
    /// No such VM.
    #[error("no VM `{name}`{}", suggestion(.near))]
    NoVm {
        /// What was asked for.
        name: String,
        /// What may be meant.
        near: Option<String>,
    },
    /// No such group.
    #[error("no group `{name}`{}", suggestion(.near))]
    NoGroup {
        /// What was asked for.
        name: String,
        /// What may be meant.
        near: Option<String>,
    },
    /// The path has no such method.
    #[error("no method {method} here; there is {allowed}")]
    Method {
        /// What was asked for.
        method: String,
        /// What there is.
        allowed: String,
    },
    /// The body is too long.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// The body is something else.
    #[error("the body is not said to be JSON; send `content-type: application/json`")]
    MediaType,
    /// The body is broken off.
    #[error("the body could not be read: {0}")]
    Body(String),
    /// The body is no JSON.
    #[error("the body is no JSON: {0}")]
    Json(String),
    /// The body has to be an object.
    #[error("`{field}` is no object")]
    Object {
        /// Where.
        field: String,
    },
    /// A field nobody knows.
    #[error("unknown field `{field}`; there are {known}")]
    UnknownField {
        /// Where.
        field: String,
        /// What there is.
        known: String,
    },
    /// A field that must be there.
    #[error("`{field}` is missing")]
    Missing {
        /// Where.
        field: String,
    },
    /// A field of another type.
    #[error("`{field}` is not {expected}")]
    Type {
        /// Where.
        field: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A value that does not go.
    #[error("{error}; {}", .error.remedy())]
    Value {
        /// Where.
        field: String,
        /// Why.
        error: ValueError,
    },
    /// A group that is named and not there.
    #[error("unknown group `{name}`{}", suggestion(.near))]
    UnknownGroup {
        /// Where.
        field: String,
        /// Its name.
        name: String,
        /// What may be meant.
        near: Option<String>,
    },
    /// A VM that is named and not there.
    #[error("unknown VM `{name}`{}", suggestion(.near))]
    UnknownVm {
        /// Where.
        field: String,
        /// Its name.
        name: String,
        /// What may be meant.
        near: Option<String>,
    },
    /// More rules than there may be.
    #[error("{count} rules; there may be {most}")]
    TooManyRules {
        /// How many.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// The VM is there, elsewhere.
    #[error("VM `{name}` is there, with socket {socket}; remove it first, or use that socket")]
    OtherSocket {
        /// The VM.
        name: String,
        /// Its socket.
        socket: PathBuf,
    },
    /// The VM is not one that was added.
    #[error("VM `{0}` is in the configuration; remove it there")]
    Configured(String),
    /// The configuration says nothing of the VM.
    #[error("VM `{0}` is not in the configuration, so there is nothing to go back to; remove it")]
    NotConfigured(String),
    /// The socket is another VM's.
    #[error("socket {socket} is that of VM `{name}`; use another")]
    SocketTaken {
        /// The socket.
        socket: PathBuf,
        /// Whose it is.
        name: String,
    },
    /// Nobody could connect.
    #[error("{error}{}", because(.error))]
    Listen {
        /// Why.
        error: ListenError,
    },
    /// The engine does not take it.
    #[error("the engine refuses: {0}")]
    Engine(#[from] ccc_core::EngineError),
    /// The client may not do anything here.
    #[error("{0}")]
    Forbidden(String),
    /// More requests at once than the daemon takes.
    #[error("too many requests at once: nothing was done; try again")]
    Busy,
    /// The daemon is about to end.
    #[error("the daemon is stopping")]
    Stopping,
    /// The change is in force and will be forgotten.
    #[error("in force, but not kept for the next start: cannot write {path}: {why}")]
    NotKept {
        /// The state file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

fn suggestion(near: &Option<String>) -> String {
    near.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

fn because(error: &ListenError) -> String {
    error.source().map(|source| format!(": {source}")).unwrap_or_default()
}

impl ApiError {
    /// Status code of the answer.
    pub fn status(&self) -> u16 {
        match self {
            ApiError::Forbidden(_) => 403,
            ApiError::NoPath(_) | ApiError::NoVm { .. } | ApiError::NoGroup { .. } => 404,
            ApiError::Method { .. } => 405,
            ApiError::OtherSocket { .. } | ApiError::Configured(_) => 409,
            ApiError::NotConfigured(_) => 409,
            ApiError::TooLarge(_) => 413,
            ApiError::MediaType => 415,
            ApiError::NotKept { .. } => 500,
            ApiError::Listen { error: ListenError::Files { .. } } => 503,
            ApiError::Busy | ApiError::Stopping => 503,
            _ => 400,
        }
    }

    /// The field that is wrong, if it is one.
    pub fn field(&self) -> Option<&str> {
        match self {
            ApiError::Object { field }
            | ApiError::UnknownField { field, .. }
            | ApiError::Missing { field }
            | ApiError::Type { field, .. }
            | ApiError::Value { field, .. }
            | ApiError::UnknownGroup { field, .. }
            | ApiError::UnknownVm { field, .. } => Some(field),
            ApiError::TooManyRules { .. } => Some("rules"),
            ApiError::OtherSocket { .. }
            | ApiError::SocketTaken { .. }
            | ApiError::Listen { .. } => Some("socket"),
            _ => None,
        }
    }

    /// Body of the answer.
    pub fn body(&self) -> Value {
        json!({"error": self.to_string(), "field": self.field()})
    }
}

/// The name most like `name`, if one is like it.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    names
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_field_and_what_may_be_meant() {
        let near = nearest("uplnk", ["default", "uplink"].into_iter());
        let error =
            ApiError::UnknownGroup { field: "group".to_owned(), name: "uplnk".to_owned(), near };
        assert_eq!(error.status(), 400);
        let expected = json!({
            "error": "unknown group `uplnk`; did you mean `uplink`?", "field": "group"});
        assert_eq!(error.body(), expected);
        assert_eq!(nearest("x", ["default"].into_iter()), None);
    }
}
