// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! In which form answers are printed.
use std::io::{self, Write};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlEmitter, yaml::Hash};

/// In which form answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As an operator reads them.
    Text,
    /// As the daemon tells them.
    Json,
    /// The same, for whatever reads YAML.
    Yaml,
}

impl Form {
    /// Prints an answer, or what is said of it.
    pub fn print(self, out: &mut impl Write, answer: &Value, text: &str) -> io::Result<()> {
        match self {
            Form::Text => write!(out, "{text}")?,
            Form::Json => writeln!(out, "{answer:#}")?,
            Form::Yaml => writeln!(out, "{}", yaml(answer)?)?,
        }
        out.flush()
    }
}

fn yaml(answer: &Value) -> io::Result<String> {
    let mut text = String::new();
    let done = YamlEmitter::new(&mut text).dump(&tree(answer));
    done.map(|()| text).map_err(io::Error::other)
}

fn tree(of: &Value) -> Yaml {
    match of {
        Value::Null => Yaml::Null,
        Value::Bool(is) => Yaml::Boolean(*is),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Yaml::Integer(whole),
            None => Yaml::Real(number.to_string()),
        },
        Value::String(text) => Yaml::String(text.clone()),
        Value::Array(items) => Yaml::Array(items.iter().map(tree).collect()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, of)| (Yaml::String(key.clone()), tree(of)));
            Yaml::Hash(fields.collect::<Hash>())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use yaml_rust2::YamlLoader;

    use super::*;

    #[test]
    fn an_answer_is_the_same_in_yaml() {
        let answer = json!({
            "name": "web", "weight": 2.5, "flows": u64::MAX, "group": null, "coupled": true,
            "why": "no: \"such\"\nline", "off": "off", "vms": [{"name": "a"}, 3], "none": []});
        let mut told = Vec::new();
        Form::Yaml.print(&mut told, &answer, "").expect("printed");
        let told = String::from_utf8(told).expect("text");
        let read = YamlLoader::load_from_str(&told).expect("YAML").remove(0);
        assert_eq!(read, tree(&answer), "{told}");
        assert!(told.ends_with('\n') && !told.ends_with("\n\n"), "{told:?}");
    }
}
