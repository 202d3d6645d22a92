// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! From a request to a command.
use ccc_settings::{Changes, Fault, RuleSettings, Table, VmSpec, check_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    admin::{ApiError, Command},
    coupling::{ID_MAX, TrialSpec},
    settings::state::{self, Change},
};

/// Longest body.
pub const BODY_MAX: usize = 64 << 10;
/// Most flows told at once, and how many are if nothing is said.
pub const FLOWS_MAX: usize = 1000;

/// Where monitoring systems look by themselves.
pub const METRICS: &str = "/metrics";
/// Every path with its methods.
pub const ROUTES: &[(&str, &[&str])] = &[
    ("/v1/status", &["GET"]),
    ("/v1/vms", &["GET"]),
    ("/v1/vms/{name}", &["GET", "PATCH", "PUT", "DELETE"]),
    ("/v1/vms/{name}/changes", &["DELETE"]),
    ("/v1/vms/{name}/flows", &["GET"]),
    ("/v1/flows", &["GET"]),
    ("/v1/groups", &["GET"]),
    ("/v1/groups/{name}", &["GET", "PATCH"]),
    ("/v1/groups/{name}/changes", &["DELETE"]),
    ("/v1/groups/{name}/trial", &["PUT", "DELETE"]),
    ("/v1/rules", &["GET", "PUT", "DELETE"]),
    ("/v1/log", &["GET", "PATCH"]),
    (METRICS, &["GET"]),
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
        self.check_route(&segments)?;
        let command = match (self.method, &segments[2..]) {
            _ if self.path == METRICS => Command::Metrics,
            ("GET", ["status"]) => Command::Status,
            ("GET", ["vms"]) => Command::Vms,
            ("GET", ["vms", name]) => Command::Vm((*name).to_owned()),
            ("GET", ["vms", name, "flows"]) => return self.flows(name),
            ("GET", ["flows"]) => return self.largest(),
            ("GET", ["groups"]) => Command::Groups,
            ("GET", ["groups", name]) => Command::Group((*name).to_owned()),
            ("GET", ["rules"]) => Command::Rules,
            ("GET", ["log"]) => Command::Log,
            ("PATCH", ["log"]) => Command::SetLog(Changes::read(self.value()?)?),
            ("PUT", ["groups", name, "trial"]) => {
                let wanted = Changes::read(self.value()?)?.apply(&TrialSpec::default());
                Command::Trial((*name).to_owned(), wanted)
            }
            ("DELETE", ["groups", name, "trial"]) => return self.end_trial(name),
            (_, segments) => Command::Change(self.change(segments)?),
        };
        match self.parameters().next() {
            Some((key, _)) => Err(Fault::unknown(key, "no parameters").into()),
            None => Ok(command),
        }
    }

    /// What is to be changed.
    fn change(&self, segments: &[&str]) -> Result<Change, ApiError> {
        Ok(match (self.method, segments) {
            ("DELETE", ["vms", name]) => Change::DeleteVm((*name).to_owned()),
            ("DELETE", ["vms", name, "changes"]) => Change::ResetVm((*name).to_owned()),
            ("DELETE", ["groups", name, "changes"]) => Change::ResetGroup((*name).to_owned()),
            ("DELETE", ["rules"]) => Change::SetRules(None),
            ("PUT", ["vms", name]) => {
                check_name("name", name)?;
                Change::PutVm((*name).to_owned(), VmSpec::read(self.value()?)?)
            }
            ("PATCH", ["vms", name]) => {
                Change::UpdateVm((*name).to_owned(), Changes::read(self.value()?)?)
            }
            ("PATCH", ["groups", name]) => {
                Change::UpdateGroup((*name).to_owned(), Changes::read(self.value()?)?)
            }
            ("PUT", ["rules"]) => Change::SetRules(Some(self.rules()?)),
            _ => return Err(ApiError::NoPath(self.path.to_owned())),
        })
    }

    /// Makes sure that there is such a path, and that it has the method.
    fn check_route(&self, segments: &[&str]) -> Result<(), ApiError> {
        let fits = |route: &str| {
            let pattern = route.split('/');
            route.split('/').count() == segments.len()
                && pattern.zip(segments).all(|(of, is)| of == *is || of == "{name}")
        };
        let route = ROUTES.iter().find(|(route, _)| fits(route));
        let (_, methods) = route.ok_or_else(|| ApiError::NoPath(self.path.to_owned()))?;
        if methods.contains(&self.method) {
            return Ok(());
        }
        let allowed = methods.join(", ");
        Err(ApiError::Method { method: self.method.to_owned(), allowed })
    }

    fn flows(&self, name: &str) -> Result<Command, ApiError> {
        let Page { from, limit } = self.table(Page::default())?;
        Ok(Command::Flows { vm: name.to_owned(), from, limit })
    }

    fn largest(&self) -> Result<Command, ApiError> {
        let Largest { limit } = self.table(Largest::default())?;
        Ok(Command::Largest { limit })
    }

    fn end_trial(&self, name: &str) -> Result<Command, ApiError> {
        let TrialId { id } = self.table(TrialId::default())?;
        let id = id.ok_or_else(|| Fault::missing("id", "that of the trial, as its begin told"))?;
        Ok(Command::EndTrial(name.to_owned(), id))
    }

    /// What the parameters say, over what is so if they say nothing.
    fn table<T: Table>(&self, usual: T) -> Result<T, ApiError> {
        let mut said = Changes::default();
        self.parameters().try_for_each(|(key, value)| said.set_text(key, value))?;
        Ok(said.apply(&usual))
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.query.unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    fn rules(&self) -> Result<Vec<RuleSettings>, ApiError> {
        let rules = state::read_only_field(self.value()?, "rules")?;
        let rules = rules.ok_or_else(|| Fault::missing("rules", "a list of rules"))?;
        Ok(state::read_rules(rules)?)
    }

    fn value(&self) -> Result<Value, ApiError> {
        if !self.json {
            return Err(ApiError::MediaType);
        }
        serde_json::from_slice(self.body).map_err(|error| ApiError::Json(error.to_string()))
    }
}

/// Which flows of a VM are asked for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Page {
    /// First slot to look at
    #[schemars(range(max = u32::MAX))]
    from: u32,
    /// Most flows to tell
    #[schemars(range(min = 1, max = FLOWS_MAX))]
    limit: usize,
}

ccc_settings::table!(Page);

impl Default for Page {
    fn default() -> Page {
        Page { from: 0, limit: FLOWS_MAX }
    }
}

/// Which trial is to end.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct TrialId {
    /// Its number
    #[schemars(range(min = 1, max = ID_MAX))]
    id: Option<u64>,
}

ccc_settings::table!(TrialId);

/// How many flows of the host are asked for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Largest {
    /// Most flows to tell
    #[schemars(range(min = 1, max = FLOWS_MAX))]
    limit: usize,
}

ccc_settings::table!(Largest);

impl Default for Largest {
    fn default() -> Largest {
        Largest { limit: 50 }
    }
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
                    "PUT" if route.ends_with("trial") => r#"{"coupled": false}"#,
                    "PUT" => r#"{"socket": "/s"}"#,
                    _ => "{}",
                };
                let ends = *method == "DELETE" && route.ends_with("trial");
                let target = route.replace("{name}", "a") + if ends { "?id=7" } else { "" };
                let command = ask(method, &target, body);
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
        assert_eq!(status("GET", "/v1/vms/a/flows?from=-0"), 400);
        assert_eq!(status("GET", "/v1/vms/a/flows?to=1"), 400);
        assert_eq!(status("DELETE", "/v1/groups/a/trial"), 400);
        assert_eq!(status("DELETE", "/v1/groups/a/trial?id=0"), 400);
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
