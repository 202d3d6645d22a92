// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The mark of what programs of two releases share: tables that one leaves to the next, while
//! connections go on with the program that they began with.
/// What is in the maps.
const LAYOUT: [&str; 2] =
    [include_str!("../bpf/table.h"), include_str!("../../include/virtio_ccc.h")];
/// What their bits mean beyond that, to programs that use them at the same time: how a slot is
/// taken, parked and taken from who has parked (bpf/slot.h).  Another number with each change that
/// one of before would not understand: then its connections go on alone, and not beside others.
const PROTOCOL: u32 = 1;

/// What a program's pins have, empty, beside maps of this layout.
pub fn name() -> String {
    with(PROTOCOL)
}

fn with(protocol: u32) -> String {
    let what = format!("{}{protocol}", LAYOUT.concat());
    format!("layout-{}", digest(what.as_bytes()))
}

/// FNV-1a, in 16 digits: releases that were built by different compilers agree on it.
pub fn digest(what: &[u8]) -> String {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", what.iter().fold(0xcbf2_9ce4_8422_2325, add))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        ffi::OsStr,
    };

    use libbpf_rs::btf::{
        Btf, BtfType, HasSize,
        types::{Array, MemberAttr, Struct},
    };

    use super::*;
    use crate::program::OBJECT;

    /// Which protocol it was, and digests of how the structures lay and of the code that has the
    /// protocol, when somebody last looked at whether these fit together.
    const KEPT: (u32, &str, &str) = (1, "3cb011e4687a043e", "9669b7c75f2a3ff4");
    const TABLE: &str = "ccc_table";
    /// Who takes, parks, unparks and leaves a slot.
    const PROTOCOL_CODE: [&str; 2] = [include_str!("../bpf/slot.h"), include_str!("../bpf/flow.h")];

    /// C without comments, and with one space between words.
    fn code(text: &str) -> String {
        let mut parts = text.split("/*");
        let first = parts.next().unwrap_or_default().to_owned();
        let rest = parts.filter_map(|part| Some(part.split_once("*/")?.1));
        let code = rest.fold(first, |code, part| code + " " + part);
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn text_of(named: Option<&OsStr>) -> String {
        named.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Structures of a table by their names, each with its members.
    fn structures(btf: &Btf<'_>) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut next = vec![btf.type_by_name::<Struct<'_>>(TABLE).expect("in the program")];
        while let Some(structure) = next.pop() {
            let mut text = format!("{} bytes", structure.size());
            for member in structure.iter() {
                let all: BtfType<'_> = btf.type_by_id(member.ty).expect("its type");
                let (mut one, mut times) = (all.skip_mods_and_typedefs(), 1);
                while let Ok(array) = Array::try_from(one) {
                    times *= array.capacity();
                    one = array.contained_type().skip_mods_and_typedefs();
                }
                let MemberAttr::Normal { offset } = member.attr else { panic!("a bit field") };
                let kind = format!("{:?} {}", one.kind(), text_of(one.name()));
                text += &format!("\n  {} at {}: {times} {kind}", text_of(member.name), offset / 8);
                next.extend(Struct::try_from(one));
            }
            found.insert(text_of(structure.name()), text);
        }
        found
    }

    fn all() -> BTreeMap<String, String> {
        structures(&Btf::from_raw("ccc.bpf.o", OBJECT).expect("an object").expect("with BTF"))
    }

    #[test]
    fn another_protocol_has_another_mark() {
        assert_ne!(with(PROTOCOL), with(PROTOCOL + 1));
    }

    #[test]
    fn every_structure_that_is_shared_is_in_the_mark() {
        let all = all();
        let marked = LAYOUT.concat();
        let is_marked = |name: &&String| marked.contains(&format!("struct {name} {{"));
        let others: BTreeSet<&String> = all.keys().filter(|name| !is_marked(name)).collect();
        assert!(others.is_empty(), "{others:?} of the tables are defined where no mark looks");
        assert!(all.len() > 10 && all.contains_key("ccc_control"), "{:?}", all.keys());
    }

    #[test]
    fn what_is_shared_does_not_change_without_a_look_at_the_mark() {
        let text: String = all().iter().map(|(name, text)| format!("{name}: {text}\n")).collect();
        let (layout, protocol) =
            (digest(text.as_bytes()), digest(PROTOCOL_CODE.map(code).concat().as_bytes()));
        assert_eq!(
            (PROTOCOL, layout.as_str(), protocol.as_str()),
            KEPT,
            "tables, or how slots of them are taken, are others than before: if a program of before does \
             not understand one of now beside it, or the other way round, PROTOCOL is one more; then \
             KEPT is what is on the left.  The structures:\n{text}"
        );
    }
}
