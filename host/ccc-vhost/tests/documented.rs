// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Configurations that documents show are ones that the daemon takes.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
};

use support::daemon::{run_for, text};

/// Documents that speak to operators.
const WHERE: [&str; 8] = [
    "README.md",
    "docs",
    "monitoring",
    "libvirt",
    "guest/bpf-ccc",
    "guest/linux-ccc",
    "ansible",
    "experiments",
];

fn documents() -> Vec<PathBuf> {
    let project = Path::new("../..");
    let files = WHERE.iter().flat_map(|place| {
        let place = project.join(place);
        let inside = fs::read_dir(&place).map(|all| all.flatten().map(|file| file.path()));
        inside.map_or_else(|_| vec![place], Iterator::collect)
    });
    files.filter(|file| file.extension().is_some_and(|kind| kind == "md")).collect()
}

/// Blocks of a document that are configurations of the daemon, each with the line that it begins at.
fn configurations(document: &str) -> Vec<(usize, String)> {
    let (mut all, mut block) = (Vec::new(), None::<(usize, String)>);
    for (number, line) in (1..).zip(document.lines()) {
        match (&mut block, line.trim_start().starts_with("```")) {
            (None, true) => block = Some((number + 1, String::new())),
            (Some(_), true) => all.extend(block.take()),
            (Some((_, text)), false) => *text += &format!("{line}\n"),
            (None, false) => {}
        }
    }
    let is_ours = |text: &str| {
        text.lines().any(|line| {
            ["[daemon]", "[group.", "[vm.", "[[rule", "[defaults"]
                .iter()
                .any(|table| line.starts_with(table))
        })
    };
    all.retain(|(_, text)| is_ours(text));
    all
}

/// A part of a configuration beside what the package's has.
fn with_control(part: &str) -> String {
    const CONTROL: &str = "[daemon]\ncontrol = \"/run/ccc/control/control.sock\"\n";
    match part {
        whole if whole.contains("control = ") => whole.to_owned(),
        part if part.contains("[daemon]\n") => part.replace("[daemon]\n", CONTROL),
        part => CONTROL.to_owned() + part,
    }
}

/// What is wrong with a configuration on a host as the package makes it, with the documents' groups.
fn wrong(configuration: &str) -> Option<String> {
    let host = tempfile::tempdir().unwrap();
    let at = |path: &str| host.path().join(path);
    for place in ["run/ccc/vm", "run/ccc/control", "var/lib/ccc"] {
        fs::create_dir_all(at(place)).unwrap();
    }
    let root = text(host.path());
    let here = with_control(configuration)
        .replace("\"/run/ccc/", &format!("\"{root}/run/ccc/"))
        .replace("\"/var/lib/", &format!("\"{root}/var/lib/"))
        // Groups that are on every machine.
        .replace("\"ccc-operators\"", "\"daemon\"")
        .replace("\"ccc-readers\"", "\"bin\"");
    fs::write(at("ccc.toml"), here).unwrap();
    let (is_right, out, said) = run_for(&["--check", "--config", text(&at("ccc.toml"))], "60");
    if !is_right {
        return Some(out + &said);
    }
    // There neither the daemon of the package may make a socket nor QEMU come.
    let is_elsewhere = |line: &&str| {
        let path = line.split('"').nth(1).and_then(|path| path.strip_prefix("/run/ccc/"));
        path.is_some_and(|path| !path.starts_with("vm/") && !path.starts_with("control/"))
    };
    let elsewhere = configuration.lines().find(is_elsewhere);
    elsewhere.map(|line| format!("{line}: neither in /run/ccc/vm nor in /run/ccc/control"))
}

#[test]
fn every_configuration_in_the_documents_is_taken() {
    let mut seen = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (line, configuration) in configurations(&text) {
            seen += 1;
            let wrong = wrong(&configuration);
            assert_eq!(wrong, None, "{}, line {line}:\n{configuration}", document.display());
        }
    }
    assert!(seen >= 5, "{seen} configurations");
}

#[test]
fn what_is_wrong_in_one_is_found() {
    let block = "text\n```toml\n[vm.web]\ntap = \"web0\"\n```\n```\ncccctl list\n```\n";
    let found = configurations(block);
    assert_eq!(found, [(3, "[vm.web]\ntap = \"web0\"\n".to_owned())]);
    assert!(wrong(&found[0].1).is_some_and(|why| why.contains("socket")));
    assert!(wrong("[vm.a]\nsocket = \"/run/ccc/a.sock\"\n").is_some());
    assert_eq!(wrong("[vm.a]\nsocket = \"/run/ccc/vm/a.sock\"\n"), None);
}
