// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The layout as a C compiler sees it is the layout of this crate.
use std::{collections::BTreeMap, fmt::Write, process::Command};

use ccc_proto::wire;

/// C expressions and the values this crate has for them.
type Expected = BTreeMap<String, u64>;

fn expected() -> Expected {
    let c_name = |name: &str| match name {
        "ID" => "VIRTIO_ID_CCC".to_owned(),
        name => format!("VIRTIO_CCC_{name}"),
    };
    let mut all: Expected =
        wire::CONSTANTS.iter().map(|(name, value)| (c_name(name), *value)).collect();
    let structs = [
        ("config", size_of::<wire::Config>(), wire::Config::FIELDS),
        ("extent", size_of::<wire::Extent>(), wire::Extent::FIELDS),
        ("report", size_of::<wire::Report>(), wire::Report::FIELDS),
        ("doorbell", size_of::<wire::Doorbell>(), wire::Doorbell::FIELDS),
        ("extent_status", size_of::<wire::ExtentStatus>(), wire::ExtentStatus::FIELDS),
        ("grant_line", size_of::<wire::GrantLine>(), wire::GrantLine::FIELDS),
        ("slot_grant", size_of::<wire::SlotGrant>(), wire::SlotGrant::FIELDS),
        ("event", size_of::<wire::Event>(), wire::Event::FIELDS),
    ];
    for (name, size, fields) in structs {
        let name = format!("struct virtio_ccc_{name}");
        all.insert(format!("sizeof({name})"), size as u64);
        for (field, offset, size) in fields {
            let field = if *field == "kind" { "type" } else { field };
            all.insert(format!("__builtin_offsetof({name}, {field})"), *offset as u64);
            all.insert(format!("sizeof((({name} *)0)->{field})"), *size as u64);
        }
    }
    all
}

fn header() -> std::path::PathBuf {
    std::path::PathBuf::from("../../guest/include")
}

/// Compiles a program that prints every expression, and runs it.
fn values_in_c(expressions: &Expected) -> Expected {
    let mut source = String::from(
        "#define VIRTIO_CCC_NO_TYPES\n#include <stdio.h>\n#include \"virtio_ccc.h\"\nint main(void)\n{\n",
    );
    for expression in expressions.keys() {
        writeln!(source, "\tprintf(\"%llu\\n\", (unsigned long long)({expression}));")
            .expect("string");
    }
    source.push_str("\treturn 0;\n}\n");
    let dir = tempfile::tempdir().expect("temporary directory");
    let (file, program) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&file, source).expect("source written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Werror", "-I"])
        .arg(header())
        .arg("-o")
        .args([&program, &file])
        .status()
        .expect("a C compiler");
    assert!(built.success());
    let output = Command::new(&program).output().expect("program runs").stdout;
    let values = String::from_utf8(output).expect("text");
    let values = values.lines().map(|value| value.parse().expect("number"));
    expressions.keys().cloned().zip(values).collect()
}

#[test]
fn c_and_rust_agree_on_every_size_offset_and_constant() {
    let ours = expected();
    assert_eq!(values_in_c(&ours), ours);
}

/// Nothing the header defines is missing here.
#[test]
fn every_name_of_the_header_is_compared() {
    let text = std::fs::read_to_string(header().join("virtio_ccc.h")).expect("header");
    let ours = expected();
    let unvalued = ["VIRTIO_CCC_H", "VIRTIO_CCC_NO_TYPES", "VIRTIO_CCC_ASSERT(name,"];
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (kind, name) = (words.next(), words.next().unwrap_or_default());
        let expression = match kind {
            Some("#define") if !unvalued.contains(&name) => name.to_owned(),
            Some("struct") => format!("sizeof(struct {name})"),
            _ => continue,
        };
        assert!(ours.contains_key(&expression), "{name} is not compared");
    }
}
