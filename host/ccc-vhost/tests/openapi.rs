// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `docs/openapi.yaml` says what is served, all of it and nothing else.
#![allow(clippy::unwrap_used)]
mod support;

use std::{collections::BTreeSet, path::Path};

use ccc_proto::wire;
use ccc_settings::{GroupSettings, LogSettings, RuleSettings, Table, VmSettings};
use ccc_vhost::ROUTES;
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, text},
    driver::{Driver, report},
    frontend::Mode,
    operator::Operator,
};
use yaml_rust2::{Yaml, YamlLoader};

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

fn document() -> Yaml {
    let path = Path::new("../../docs/openapi.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    YamlLoader::load_from_str(&text).unwrap().remove(0)
}

/// Follows `$ref`s.
fn resolve<'a>(document: &'a Yaml, node: &'a Yaml) -> &'a Yaml {
    match node["$ref"].as_str() {
        Some(reference) => {
            let path = reference.strip_prefix("#/").unwrap().split('/');
            let target = path.fold(document, |node, key| &node[key]);
            assert!(!target.is_badvalue(), "{reference} is not there");
            resolve(document, target)
        }
        None => node,
    }
}

fn keys(node: &Yaml) -> BTreeSet<String> {
    let hash = node.as_hash().unwrap();
    hash.keys().map(|key| key.as_str().unwrap().to_owned()).collect()
}

fn schema<'a>(document: &'a Yaml, holder: &'a Yaml) -> &'a Yaml {
    let content = resolve(document, holder)["content"].as_hash().unwrap();
    let (_, content) = content.iter().next().unwrap();
    resolve(document, &content["schema"])
}

/// The types a schema allows.
fn types(schema: &Yaml) -> Vec<&str> {
    match &schema["type"] {
        Yaml::Array(types) => types.iter().map(|one| one.as_str().unwrap()).collect(),
        one => vec![one.as_str().unwrap()],
    }
}

fn fits(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other}"),
    }
}

/// What is said of a value is so, and nothing is left unsaid.
fn compare(document: &Yaml, schema: &Yaml, value: &Value, place: &str) {
    let schema = resolve(document, schema);
    let types = types(schema);
    assert!(types.iter().any(|kind| fits(value, kind)), "{place}: {value} is none of {types:?}");
    match value {
        Value::Object(map) => {
            let served: BTreeSet<String> = map.keys().cloned().collect();
            assert_eq!(served, keys(&schema["properties"]), "{place}");
            for (key, value) in map {
                let place = format!("{place}.{key}");
                compare(document, &schema["properties"][key.as_str()], value, &place);
            }
        }
        Value::Array(items) => {
            // Of words there is nothing to compare but that they are words.
            let words = schema["items"]["type"].as_str() == Some("string");
            assert!(words || !items.is_empty(), "{place}: nothing to compare");
            for item in items {
                compare(document, &schema["items"], item, &format!("{place}[]"));
            }
        }
        Value::String(text) => {
            if let Some(words) = schema["enum"].as_vec() {
                let known = words.iter().any(|word| word.as_str() == Some(text));
                assert!(known, "{place}: {text} is not among {words:?}");
            }
        }
        _ => {}
    }
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let document = document();
    let served: BTreeSet<(String, String)> = ROUTES
        .iter()
        .flat_map(|(path, methods)| methods.iter().map(|m| ((*path).to_owned(), m.to_lowercase())))
        .collect();
    let mut described = BTreeSet::new();
    for path in keys(&document["paths"]) {
        let item = &document["paths"][path.as_str()];
        let methods = METHODS.iter().filter(|method| !item[**method].is_badvalue());
        described.extend(methods.map(|method| (path.clone(), (*method).to_owned())));
    }
    assert_eq!(served, described);
}

#[test]
fn every_field_of_every_answer_is_described_and_the_other_way_round() {
    let document = document();
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let own = format!("[daemon]\ncontrol = \"{}\"\npoll_max_us = 10\n", control.display());
    let rules = "[[rule]]\nvm = \"a\"\ndestination = \"192.0.2.0/24\"\ngroup = \"none\"\n";
    let daemon = Daemon::start_in(dir, &[("a", 1.0, "default")], &format!("{own}{rules}"), &[]);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.tell(&extent, wire::OP_REGISTER, 0, &report(1));
    let operator = Operator::at(&daemon.socket("control"));
    let socket = daemon.socket("b");
    operator.patch("/v1/vms/a", &json!({"weight": 2}));
    let mut trial = Value::Null;
    for (route, methods) in ROUTES {
        let name = if route.contains("groups") { "default" } else { "a" };
        for method in *methods {
            // Of VMs, one is added and removed, so that flows can be looked at.
            let added = ["PUT", "DELETE"].contains(method) && *route == "/v1/vms/{name}";
            let mut path = route.replace("{name}", if added { "b" } else { name });
            if *method == "DELETE" && route.ends_with("trial") {
                path += &format!("?id={trial}");
            }
            let body = match (*method, *route) {
                ("GET" | "DELETE", _) => None,
                (_, "/v1/vms/{name}") if added => Some(json!({"socket": text(&socket)})),
                (_, "/v1/rules") => {
                    Some(json!({"rules": [{"group": null, "destination": "10.0.0.0/8"}]}))
                }
                (_, "/v1/log") => Some(json!({"level": "info"})),
                (_, "/v1/groups/{name}/trial") => Some(json!({"coupled": true, "seconds": 300})),
                _ => Some(json!({"coupled": true})),
            };
            let (status, answer) = operator.ask(method, &path, body.as_ref());
            assert_eq!(status, 200, "{method} {path}: {answer}");
            if *method == "PUT" && route.ends_with("trial") {
                trial = answer["trial"]["id"].clone();
            }
            let answers = &document["paths"][*route][method.to_lowercase().as_str()]["responses"];
            let place = format!("{method} {route}");
            compare(&document, schema(&document, &answers["200"]), &answer, &place);
        }
    }
    let (_, error) = operator.ask("PATCH", "/v1/vms/a", Some(&json!({"x": 1})));
    compare(&document, &document["components"]["schemas"]["Error"], &error, "error");
}

/// What is described of a body is what the type of the settings says.
fn compare_settings<T: Table>(described: &Yaml, besides: &[&str]) {
    let number = |node: &Yaml| node.as_f64().or_else(|| node.as_i64().map(|whole| whole as f64));
    let properties = &described["properties"];
    let mut known: BTreeSet<String> = besides.iter().map(|name| (*name).to_owned()).collect();
    for field in T::fields() {
        let node = &properties[field.name.as_str()];
        let words = node["enum"].as_vec().into_iter().flatten();
        let words: BTreeSet<&str> = words.map(|word| word.as_str().unwrap()).collect();
        assert_eq!(words, field.words().into_iter().collect(), "{}", field.name);
        let range = number(&node["minimum"]).zip(number(&node["maximum"]));
        assert_eq!(range, field.range(), "{}", field.name);
        assert_eq!(types(node) == ["boolean"], field.is_switch(), "{}", field.name);
        known.insert(field.name.clone());
    }
    assert_eq!(keys(properties), known);
}

#[test]
fn every_field_of_every_body_is_described_and_the_other_way_round() {
    let document = document();
    let body = |path: &str, method: &str| {
        schema(&document, &document["paths"][path][method]["requestBody"])
    };
    compare_settings::<VmSettings>(body("/v1/vms/{name}", "patch"), &[]);
    compare_settings::<VmSettings>(body("/v1/vms/{name}", "put"), &["socket"]);
    compare_settings::<GroupSettings>(body("/v1/groups/{name}", "patch"), &[]);
    compare_settings::<LogSettings>(body("/v1/log", "patch"), &[]);
    assert_eq!(keys(&body("/v1/rules", "put")["properties"]), ["rules".to_owned()].into());
    compare_settings::<RuleSettings>(&document["components"]["schemas"]["Rule"], &[]);
}

/// Every word that a group's setting can have is taken while the daemon runs.
#[test]
fn every_described_word_is_taken_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let own = format!("[daemon]\ncontrol = \"{}\"\n", dir.path().join("control").display());
    let daemon = Daemon::start_in(dir, &[], &own, &[]);
    let operator = Operator::at(&daemon.socket("control"));
    for field in GroupSettings::fields() {
        for word in field.words() {
            let group = operator.patch("/v1/groups/default", &json!({field.name.as_str(): word}));
            assert_eq!(group[&field.name], word);
        }
    }
}

#[test]
fn every_part_of_the_description_is_used() {
    let document = document();
    let path = Path::new("../../docs/openapi.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    for kind in ["parameters", "requestBodies", "responses", "schemas"] {
        for name in keys(&document["components"][kind]) {
            let reference = format!("\"#/components/{kind}/{name}\"");
            assert!(text.contains(&reference), "{reference} is not used");
        }
    }
}
