// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The layout as a C compiler sees it is the layout of this crate.
use std::{
    collections::BTreeMap,
    fmt::Write,
    mem::{offset_of, size_of},
    path::Path,
    process::Command,
};

use ccc_proto::wire;

/// One C expression and the value this crate has for it.
type Expected = BTreeMap<String, u64>;

macro_rules! layout {
    ($expected:ident, $c:literal, $type:ident { $($field:ident $(= $c_field:literal)?),* $(,)? }) => {
        $expected.insert(format!("sizeof(struct {})", $c), size_of::<wire::$type>() as u64);
        $({
            #[allow(unused_mut, unused_assignments)]
            let mut name = stringify!($field);
            $(name = $c_field;)?
            let (start, size) = (offset_of!(wire::$type, $field), field_size(|x: &wire::$type| size_of_val(&x.$field)));
            $expected.insert(format!("__builtin_offsetof(struct {}, {name})", $c), start as u64);
            $expected.insert(format!("sizeof(((struct {} *)0)->{name})", $c), size as u64);
        })*
    };
}

fn field_size<T: zerocopy::FromBytes>(size: impl Fn(&T) -> usize) -> usize {
    size(&T::new_zeroed())
}

macro_rules! constants {
    ($expected:ident, $($name:ident = $c:literal),* $(,)?) => {
        $($expected.insert($c.to_owned(), wire::$name as u64);)*
    };
}

fn expected() -> Expected {
    let mut all = Expected::new();
    layout!(all, "virtio_ccc_config", Config { revision, max_slots, max_grant_lines, stale_us });
    layout!(all, "virtio_ccc_extent", Extent { first_slot, slots, grant_lines, reserved });
    layout!(
        all,
        "virtio_ccc_report",
        Report {
            seq,
            state,
            flags,
            priority,
            acked_limited_bytes,
            delivered_bytes,
            cwnd_growth_bytes,
            congestion_events,
            timeouts,
            spurious_events,
            beta,
            congestion_epoch,
            cwnd_bytes,
            ssthresh_bytes,
            srtt_us,
            min_rtt_us,
            inflight_bytes,
            mss_bytes,
            rtt_sample,
            generation,
            family,
            reserved1,
            sport,
            dport,
            reserved2,
            reserved3,
            saddr,
            daddr,
            algorithm,
        }
    );
    layout!(all, "virtio_ccc_doorbell", Doorbell { op, reserved0, slot, generation, reserved1 });
    layout!(all, "virtio_ccc_extent_status", ExtentStatus { status, instance, reserved });
    layout!(
        all,
        "virtio_ccc_grant_line",
        GrantLine { seq, epoch, flags, rounding_offset, level, ssthresh_level, group, reserved }
    );
    layout!(all, "virtio_ccc_slot_grant", SlotGrant { generation, line, flags, cap_bytes });
    layout!(all, "virtio_ccc_event", Event { kind = "type", reserved, value });
    constants!(
        all,
        ID = "VIRTIO_ID_CCC",
        F_RATE_SHARE = "VIRTIO_CCC_F_RATE_SHARE",
        F_SLOT_CAP = "VIRTIO_CCC_F_SLOT_CAP",
        VQ_TABLE = "VIRTIO_CCC_VQ_TABLE",
        VQ_DOORBELL = "VIRTIO_CCC_VQ_DOORBELL",
        VQ_EVENT = "VIRTIO_CCC_VQ_EVENT",
        VQ_COUNT = "VIRTIO_CCC_VQ_COUNT",
        REVISION = "VIRTIO_CCC_REVISION",
        EXTENTS_MAX = "VIRTIO_CCC_EXTENTS_MAX",
        STATE_FREE = "VIRTIO_CCC_STATE_FREE",
        STATE_SS = "VIRTIO_CCC_STATE_SS",
        STATE_CA = "VIRTIO_CCC_STATE_CA",
        STATE_FR = "VIRTIO_CCC_STATE_FR",
        STATE_LOSS = "VIRTIO_CCC_STATE_LOSS",
        R_ACTIVE = "VIRTIO_CCC_R_ACTIVE",
        R_CWND_LIMITED = "VIRTIO_CCC_R_CWND_LIMITED",
        SSTHRESH_UNSET = "VIRTIO_CCC_SSTHRESH_UNSET",
        RTT_UNIT_US = "VIRTIO_CCC_RTT_UNIT_US",
        UNIT_RTT_UNKNOWN_US = "VIRTIO_CCC_UNIT_RTT_UNKNOWN_US",
        UNIT_RTT_MAX_US = "VIRTIO_CCC_UNIT_RTT_MAX_US",
        PRIORITY_ONE = "VIRTIO_CCC_PRIORITY_ONE",
        PRIORITY_MAX = "VIRTIO_CCC_PRIORITY_MAX",
        OP_REGISTER = "VIRTIO_CCC_OP_REGISTER",
        OP_UPDATE = "VIRTIO_CCC_OP_UPDATE",
        OP_LEAVE = "VIRTIO_CCC_OP_LEAVE",
        OP_RESCAN = "VIRTIO_CCC_OP_RESCAN",
        OP_RELEASE = "VIRTIO_CCC_OP_RELEASE",
        EXTENT_PENDING = "VIRTIO_CCC_EXTENT_PENDING",
        EXTENT_ACCEPTED = "VIRTIO_CCC_EXTENT_ACCEPTED",
        EXTENT_REFUSED = "VIRTIO_CCC_EXTENT_REFUSED",
        L_COUPLED = "VIRTIO_CCC_L_COUPLED",
        L_SLOW_START = "VIRTIO_CCC_L_SLOW_START",
        L_RATE = "VIRTIO_CCC_L_RATE",
        LEVEL_UNSET = "VIRTIO_CCC_LEVEL_UNSET",
        LEVEL_SHIFT = "VIRTIO_CCC_LEVEL_SHIFT",
        G_ACCEPTED = "VIRTIO_CCC_G_ACCEPTED",
        CAP_NONE = "VIRTIO_CCC_CAP_NONE",
        EV_RESYNC = "VIRTIO_CCC_EV_RESYNC",
        EV_POLICY = "VIRTIO_CCC_EV_POLICY",
        EV_RELEASE = "VIRTIO_CCC_EV_RELEASE",
    );
    all
}

fn header() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/include")
}

/// Compiles a program that prints every expression, and runs it.
fn values_in_c(expressions: &Expected) -> Expected {
    let mut source = String::from(
        "#define VIRTIO_CCC_NO_TYPES\n#include <stdio.h>\n#include \"virtio_ccc.h\"\nint main(void)\n{\n",
    );
    for (number, expression) in expressions.keys().enumerate() {
        writeln!(source, "\tprintf(\"%d %llu\\n\", {number}, (unsigned long long)({expression}));")
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
    let lines = String::from_utf8(output).expect("text");
    expressions
        .keys()
        .zip(lines.lines())
        .map(|(name, line)| {
            let value = line.split(' ').nth(1).expect("two words");
            (name.clone(), value.parse().expect("number"))
        })
        .collect()
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
        match words.next() {
            Some("#define") => {
                let name = words.next().expect("a name");
                assert!(
                    unvalued.contains(&name) || ours.contains_key(name),
                    "{name} is not compared"
                );
            }
            Some("struct") => {
                let name = words.next().expect("a name");
                assert!(
                    ours.contains_key(&format!("sizeof(struct {name})")),
                    "{name} is not compared"
                );
            }
            _ => {}
        }
    }
}
