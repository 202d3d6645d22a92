// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an operator may write for a setting, in the file and on the socket.
use std::path::PathBuf;

use ccc_core::{EquivalentTcps, GrowthSource, PolicyKind, ShareOf, Weight};
use ipnet::IpNet;
use thiserror::Error;

/// The name of no group, kept free for that.
pub const NO_GROUP: &str = "none";
/// Longest path a Unix socket can have.
pub const SOCKET_PATH_MAX: usize = 107;
const POLICIES: [(&str, PolicyKind); 6] = [
    ("ctrltcp", PolicyKind::CtrlTcp),
    ("uncoupled", PolicyKind::Uncoupled),
    ("e-tcp", PolicyKind::ETcp),
    ("efcm", PolicyKind::Efcm),
    ("lisa", PolicyKind::Lisa),
    ("cm", PolicyKind::Cm),
];
const SHARES: [(&str, ShareOf); 2] = [("window", ShareOf::Window), ("rate", ShareOf::Rate)];
const GROWTH_SOURCES: [(&str, GrowthSource); 3] = [
    ("mean", GrowthSource::Mean),
    ("first", GrowthSource::First),
    ("shortest-rtt", GrowthSource::ShortestRtt),
];

/// Why a value is refused.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ValueError {
    /// No such policy.
    #[error("unknown policy `{0}`")]
    Policy(String),
    /// No such share.
    #[error("unknown share `{0}`")]
    Share(String),
    /// No such coordinating connection.
    #[error("unknown growth_source `{0}`")]
    GrowthSource(String),
    /// No such part of TCPs.
    #[error("equivalent_tcps {0} is out of range")]
    EquivalentTcps(f64),
    /// No such weight.
    #[error("weight {0} is out of range")]
    Weight(f64),
    /// No name.
    #[error("`{0}` is no name")]
    Name(String),
    /// No path for a socket.
    #[error("`{0}` is no path for a socket")]
    Socket(String),
    /// No prefix of addresses.
    #[error("`{0}` is no address prefix")]
    Prefix(String),
    /// A prefix and more.
    #[error("`{given}` has bits behind its prefix")]
    HostBits {
        /// What was written.
        given: String,
        /// What may be meant.
        prefix: IpNet,
    },
}

impl ValueError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            ValueError::Policy(_) => one_of(&POLICIES),
            ValueError::Share(_) => one_of(&SHARES),
            ValueError::GrowthSource(_) => one_of(&GROWTH_SOURCES),
            ValueError::EquivalentTcps(_) => "use 0.1 to 64, 1 for the part of one TCP".to_owned(),
            ValueError::Weight(_) => "use 0.01 to 1000".to_owned(),
            ValueError::Name(_) => "use 1 to 64 letters, digits, `.`, `_` and `-`".to_owned(),
            ValueError::Socket(_) => format!(
                "use `/`, no `.`, `..`, empty step or control character, and at most \
                 {SOCKET_PATH_MAX} bytes in all"
            ),
            ValueError::Prefix(_) => "write \"10.0.0.0/8\" or \"2001:db8::/32\"".to_owned(),
            ValueError::HostBits { prefix, .. } => format!("write \"{prefix}\""),
        }
    }
}

/// A number as the operator wrote it, and what the engine makes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Given<T> {
    /// As it was written.
    pub written: f64,
    /// As it is used.
    pub value: T,
}

impl Given<Weight> {
    /// Weight 1.
    pub const ONE: Given<Weight> = Given { written: 1.0, value: Weight::ONE };
}

impl Given<EquivalentTcps> {
    /// The part of one TCP.
    pub const ONE: Given<EquivalentTcps> = Given { written: 1.0, value: EquivalentTcps::ONE };
}

/// The weight of a VM.
pub fn weight(written: f64) -> Result<Given<Weight>, ValueError> {
    Weight::from_f64(written)
        .map(|value| Given { written, value })
        .ok_or(ValueError::Weight(written))
}

/// How many TCPs a group is worth.
pub fn equivalent_tcps(written: f64) -> Result<Given<EquivalentTcps>, ValueError> {
    EquivalentTcps::from_f64(written)
        .map(|value| Given { written, value })
        .ok_or(ValueError::EquivalentTcps(written))
}

/// The policy of this name.
pub fn policy(name: &str) -> Result<PolicyKind, ValueError> {
    by_name(&POLICIES, name).ok_or_else(|| ValueError::Policy(name.to_owned()))
}

/// The share of this name.
pub fn share(name: &str) -> Result<ShareOf, ValueError> {
    by_name(&SHARES, name).ok_or_else(|| ValueError::Share(name.to_owned()))
}

/// Whose growth an aggregate takes.
pub fn growth_source(name: &str) -> Result<GrowthSource, ValueError> {
    by_name(&GROWTH_SOURCES, name).ok_or_else(|| ValueError::GrowthSource(name.to_owned()))
}

/// The name of whose growth an aggregate takes.
pub fn coco_name(growth_source: GrowthSource) -> &'static str {
    name_of(&GROWTH_SOURCES, growth_source)
}

/// The name of a policy.
pub fn policy_name(policy: PolicyKind) -> &'static str {
    name_of(&POLICIES, policy)
}

/// The name of a share.
pub fn share_name(share: ShareOf) -> &'static str {
    name_of(&SHARES, share)
}

/// A prefix of addresses.
pub fn prefix(written: &str) -> Result<IpNet, ValueError> {
    let net: IpNet = written.parse().map_err(|_| ValueError::Prefix(written.to_owned()))?;
    let prefix = net.trunc();
    if net == prefix {
        Ok(net)
    } else {
        Err(ValueError::HostBits { given: written.to_owned(), prefix })
    }
}

/// Where a socket can be, whatever directory the daemon runs in.
pub fn socket(written: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(written);
    let fits = path.is_absolute() && written.len() <= SOCKET_PATH_MAX && is_plain(written);
    if fits { Ok(path) } else { Err(ValueError::Socket(written.to_owned())) }
}

/// Goes down only, so that two that differ are two places; and makes one line of
/// a log.
pub fn is_plain(path: &str) -> bool {
    !path.chars().any(char::is_control)
        && path.split('/').skip(1).all(|step| !matches!(step, "" | "." | ".."))
}

/// Can be the name of a VM or a group.
pub fn is_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

/// `use "a", "b" or "c"`.
fn one_of<T>(table: &[(&str, T)]) -> String {
    let names: Vec<String> = table.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("use {} or {last}", others.join(", "))
        }
        _ => format!("use {}", names.concat()),
    }
}

fn by_name<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    table.iter().find(|(_, known)| *known == value).map_or("unknown", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_was_written() {
        assert_eq!(weight(0.01).map(|weight| weight.written), Ok(0.01));
        assert_eq!(weight(f64::INFINITY), Err(ValueError::Weight(f64::INFINITY)));
        assert_eq!(equivalent_tcps(65.0), Err(ValueError::EquivalentTcps(65.0)));
    }

    #[test]
    fn names_and_values_go_both_ways() {
        for (name, value) in POLICIES {
            assert_eq!((policy(name), policy_name(value)), (Ok(value), name));
        }
        for (name, value) in SHARES {
            assert_eq!((share(name), share_name(value)), (Ok(value), name));
        }
        for (name, value) in GROWTH_SOURCES {
            assert_eq!((growth_source(name), coco_name(value)), (Ok(value), name));
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let error = growth_source("last").expect_err("no such rule");
        assert_eq!(error.remedy(), "use \"mean\", \"first\" or \"shortest-rtt\"");
    }

    #[test]
    fn prefixes_are_exact() {
        assert!(prefix("10.0.0.0/8").is_ok() && prefix("2001:db8::/32").is_ok());
        assert_eq!(prefix("10.0.0.0"), Err(ValueError::Prefix("10.0.0.0".to_owned())));
        let bits = prefix("10.0.0.1/8").expect_err("bits");
        assert_eq!(bits.remedy(), "write \"10.0.0.0/8\"");
    }
}
