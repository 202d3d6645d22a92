// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Why settings cannot be looked up or changed.
use std::path::PathBuf;

use ccc_settings::Fault;
use serde_json::json;
use thiserror::Error;

/// Why settings cannot be looked up or changed.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] Fault),
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
    /// The VM has another socket.
    #[error(
        "VM `{name}` is served on socket {}; remove the VM first, or use that socket",
        .socket.display()
    )]
    OtherSocket {
        /// The VM.
        name: String,
        /// Its socket.
        socket: PathBuf,
    },
    /// A tenant has the name, and a VM is to have it.
    #[error(
        "`{name}` is the tenant {place} and no VM; remove it first (cccctl tenant remove {name}), \
         take another name, or say that it is that (tenant = \"{place}\"; of a domain, the \
         attribute `tenant` in its metadata)"
    )]
    IsTenant {
        /// The name.
        name: String,
        /// What the tenant is.
        place: String,
    },
    /// A VM has the name, and a tenant is to have it.
    #[error(
        "`{0}` is a VM and no tenant; remove it first (cccctl remove {0}), or take another name"
    )]
    IsVm(String),
    /// Another tenant is the part of the host, or the guest.
    #[error(
        "{place} is the tenant `{other}` already; remove that first (cccctl tenant remove {other}), \
         or take another place"
    )]
    PlaceTaken {
        /// What is asked for.
        place: String,
        /// Who has it.
        other: String,
    },
    /// The VM is not one that was added.
    #[error("VM `{0}` is in the configuration; remove it there")]
    Configured(String),
    /// The configuration says nothing of the VM.
    #[error("VM `{0}` is not in the configuration, so there is nothing to go back to; remove it")]
    NotConfigured(String),
    /// The engine does not take it.
    #[error("the engine refuses the change: {0}")]
    Engine(#[from] ccc_core::EngineError),
}

impl SettingsError {
    /// The same of a name that stands in a field.
    pub(super) fn in_field(self, field: &str, expected: &str) -> Fault {
        let (SettingsError::NoVm { name, near } | SettingsError::NoGroup { name, near }) = self
        else {
            return Fault::new(field, expected, &json!(null)).remedy(self.to_string());
        };
        let fault = Fault::new(field, expected, &json!(name));
        match near {
            Some(near) => fault.remedy(format!("did you mean `{near}`?")),
            None => fault.remedy("there is none of that name"),
        }
    }
}

fn suggestion(near: &Option<String>) -> String {
    near.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}
