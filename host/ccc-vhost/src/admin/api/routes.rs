// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! From a request to a command.
use serde_json::Value;

use crate::{
    admin::api::{ApiError, Command, GroupPatch, RuleSpec, VmPatch, VmSpec},
    settings::values::{self, ValueError},
};

/// Longest body.
pub const BODY_MAX: usize = 64 << 10;
/// Most flows told at once, and how many are if nothing is said.
pub const FLOWS_MAX: usize = 1000;

/// Every path with its methods.
pub const ROUTES: &[(&str, &[&str])] = &[
    ("/v1/status", &["GET"]),
    ("/v1/vms", &["GET"]),
    ("/v1/vms/{name}", &["GET", "PATCH", "PUT", "DELETE"]),
    ("/v1/vms/{name}/changes", &["DELETE"]),
    ("/v1/vms/{name}/flows", &["GET"]),
    ("/v1/groups", &["GET"]),
    ("/v1/groups/{name}", &["GET", "PATCH"]),
    ("/v1/groups/{name}/changes", &["DELETE"]),
    ("/v1/rules", &["GET", "PUT", "DELETE"]),
];

/// A request as far as commands are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path.
    pub path: &'a str,
    /// What follows `?` in its target.
    pub query: Option<&'a str>,
    /// Its body is said to be JSON.
    pub json: bool,
    /// Its body.
    pub body: &'a [u8],
}

impl Request<'_> {
    /// What is asked for.
    pub fn command(&self) -> Result<Command, ApiError> {
        let segments: Vec<&str> = self.path.split('/').collect();
        let command = match (self.allowed(&segments)?, &segments[2..]) {
            (Kind::Read, ["status"]) => Command::Status,
            (Kind::Read, ["vms"]) => Command::Vms,
            (Kind::Read, ["vms", name]) => Command::Vm((*name).to_owned()),
            (Kind::Read, ["vms", name, "flows"]) => return self.flows(name),
            (Kind::Read, ["groups"]) => Command::Groups,
            (Kind::Read, ["groups", name]) => Command::Group((*name).to_owned()),
            (Kind::Read, ["rules"]) => Command::Rules,
            (Kind::Remove, ["vms", name]) => Command::DeleteVm((*name).to_owned()),
            (Kind::Remove, ["vms", name, "changes"]) => Command::ResetVm((*name).to_owned()),
            (Kind::Remove, ["groups", name, "changes"]) => Command::ResetGroup((*name).to_owned()),
            (Kind::Remove, ["rules"]) => Command::ResetRules,
            (Kind::Write, ["vms", name]) if self.method == "PUT" => {
                let name = self::name(name)?;
                Command::PutVm(name, VmSpec::read(self.value()?)?)
            }
            (Kind::Write, ["vms", name]) => {
                Command::PatchVm((*name).to_owned(), VmPatch::read(self.value()?, "")?)
            }
            (Kind::Write, ["groups", name]) => {
                Command::PatchGroup((*name).to_owned(), GroupPatch::read(self.value()?, "")?)
            }
            (Kind::Write, ["rules"]) => Command::PutRules(RuleSpec::read_all(self.value()?)?),
            _ => return Err(ApiError::NoPath(self.path.to_owned())),
        };
        match self.parameters().next() {
            Some((key, _)) => Err(unknown(key, "none")),
            None => Ok(command),
        }
    }

    fn allowed(&self, segments: &[&str]) -> Result<Kind, ApiError> {
        let fits = |route: &str| {
            let pattern = route.split('/');
            route.split('/').count() == segments.len()
                && pattern.zip(segments).all(|(of, is)| of == *is || of == "{name}")
        };
        let route = ROUTES.iter().find(|(route, _)| fits(route));
        let (_, methods) = route.ok_or_else(|| ApiError::NoPath(self.path.to_owned()))?;
        if !methods.contains(&self.method) {
            let allowed = methods.join(", ");
            return Err(ApiError::Method { method: self.method.to_owned(), allowed });
        }
        Ok(match self.method {
            "GET" => Kind::Read,
            "DELETE" => Kind::Remove,
            _ => Kind::Write,
        })
    }

    fn flows(&self, name: &str) -> Result<Command, ApiError> {
        let (mut from, mut limit) = (0, FLOWS_MAX);
        for (key, value) in self.parameters() {
            let field = || key.to_owned();
            match key {
                "from" => {
                    let wrong = |_| ApiError::Type { field: field(), expected: "a slot number" };
                    from = value.parse().map_err(wrong)?;
                }
                "limit" => {
                    let read = value.parse().ok().filter(|n| (1..=FLOWS_MAX).contains(n));
                    let expected = "1 to 1000";
                    limit = read.ok_or(ApiError::Type { field: field(), expected })?;
                }
                _ => return Err(unknown(key, "from, limit")),
            }
        }
        Ok(Command::Flows { vm: name.to_owned(), from, limit })
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.query.unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    fn value(&self) -> Result<Value, ApiError> {
        if !self.json {
            return Err(ApiError::MediaType);
        }
        serde_json::from_slice(self.body).map_err(|error| ApiError::Json(error.to_string()))
    }
}

fn unknown(key: &str, known: &str) -> ApiError {
    ApiError::UnknownField { field: key.to_owned(), known: known.to_owned() }
}

/// The name of what is yet to be.
fn name(written: &str) -> Result<String, ApiError> {
    if values::is_name(written) {
        return Ok(written.to_owned());
    }
    let error = ValueError::Name(written.to_owned());
    Err(ApiError::Value { field: "name".to_owned(), error })
}

/// What a method does.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Remove,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, target: &str, body: &str) -> Result<Command, ApiError> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        Request { method, path, query, json: true, body: body.as_bytes() }.command()
    }

    #[test]
    fn every_route_has_a_command() {
        for (route, methods) in ROUTES {
            for method in *methods {
                let body = match *method {
                    "PUT" if route.ends_with("rules") => r#"{"rules": []}"#,
                    "PUT" => r#"{"socket": "/s"}"#,
                    _ => "{}",
                };
                let command = ask(method, &route.replace("{name}", "a"), body);
                assert!(command.is_ok(), "{method} {route}: {command:?}");
            }
        }
    }

    #[test]
    fn what_is_not_there_is_told_by_its_status() {
        let status = |method, target| ask(method, target, "{}").expect_err("refused").status();
        assert_eq!(status("GET", "/"), 404);
        assert_eq!(status("GET", "/v2/status"), 404);
        assert_eq!(status("GET", "/v1/vms/a/flows/b"), 404);
        assert_eq!(status("POST", "/v1/vms/a"), 405);
        assert_eq!(status("PATCH", "/v1/rules"), 405);
        assert_eq!(status("GET", "/v1/status?x=1"), 400);
        assert_eq!(status("GET", "/v1/vms/a/flows?limit=0"), 400);
        assert_eq!(status("GET", "/v1/vms/a/flows?from=-1"), 400);
        assert_eq!(status("GET", "/v1/vms/a/flows?to=1"), 400);
    }

    #[test]
    fn pages_of_flows_can_be_asked_for() {
        let command = ask("GET", "/v1/vms/a/flows?from=7&limit=2", "").expect("right");
        assert_eq!(command, Command::Flows { vm: "a".to_owned(), from: 7, limit: 2 });
    }

    #[test]
    fn bodies_have_to_be_json() {
        assert!(matches!(ask("PATCH", "/v1/vms/a", "{"), Err(ApiError::Json(_))));
        assert!(matches!(ask("PATCH", "/v1/vms/a", ""), Err(ApiError::Json(_))));
        let request =
            Request { method: "PUT", path: "/v1/rules", query: None, json: false, body: b"{}" };
        assert!(matches!(request.command(), Err(ApiError::MediaType)));
    }
}
