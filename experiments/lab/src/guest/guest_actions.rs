// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is done inside a guest's kernel while its flows run: the module and
//! its device come and go.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::kmod::{DeleteModuleFlags, delete_module};
use serde_json::{Value, json};

use super::clock::Clock;
use super::{output, system};
use crate::error::{Context, LabError, Result};
use crate::plan::{Plan, Sender};
use crate::scenario::vm::GuestWork;

const DEVICES: &str = "/sys/bus/virtio/devices";
const DRIVERS: &str = "/sys/bus/virtio/drivers";
/// The CCC device's id as sysfs shows it.
const DEVICE_ID: &str = "0x003f";

/// Does what is to be done and writes what came of it. A refusal is a result,
/// not an error: what the kernel refuses is part of what is looked at.
pub fn run(plan: &Plan, sender: &Sender, clock: Clock) -> Result<()> {
    let module = module_name(plan);
    let mut records = Vec::new();
    for (at, work) in &sender.work {
        clock.sleep_until(*at);
        let outcome = perform(work, &module, plan);
        records.push(record(*at, work, &outcome));
    }
    output::write_json(&plan.name, &format!("{}.actions.json", sender.vm), &Value::Array(records))
}

/// The name the kernel has for the module.
fn module_name(plan: &Plan) -> String {
    let stem = plan.module.as_deref().and_then(Path::file_stem);
    stem.map(|s| s.to_string_lossy().replace('-', "_")).unwrap_or_default()
}

fn perform(work: &GuestWork, module: &str, plan: &Plan) -> Result<()> {
    match work {
        GuestWork::UnloadModule => {
            let name = std::ffi::CString::new(module).context(|| "naming the module".into())?;
            delete_module(&name, DeleteModuleFlags::O_NONBLOCK).context(|| "unloading".into())
        }
        GuestWork::ReloadModule => system::load_module(plan.module_file(), &plan.module_options),
        GuestWork::UnbindDevice => tell_driver(module, "unbind"),
        GuestWork::BindDevice => tell_driver(module, "bind"),
        GuestWork::CongestionControl(name) => {
            system::set_sysctl("net.ipv4.tcp_congestion_control", name)
        }
    }
}

fn tell_driver(driver: &str, what: &str) -> Result<()> {
    let path = PathBuf::from(DRIVERS).join(driver).join(what);
    fs::write(&path, device()?).on("writing", &path)
}

/// The CCC device's name on its bus.
fn device() -> Result<String> {
    let all = Path::new(DEVICES);
    let mut names: Vec<_> = fs::read_dir(all).on("reading", all)?.flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    let ours = names.iter().find(|entry| {
        fs::read_to_string(entry.path().join("device")).is_ok_and(|id| id.trim() == DEVICE_ID)
    });
    let name = ours.map(|entry| entry.file_name().to_string_lossy().into_owned());
    name.ok_or(LabError::Io { what: "CCC device".into(), source: io::ErrorKind::NotFound.into() })
}

fn record(at: u64, work: &GuestWork, outcome: &Result<()>) -> Value {
    let mut record = json!({"at_s": at as f64 / 1e9, "action": work, "done": outcome.is_ok()});
    if let Err(error) = outcome {
        record["error"] = error.to_string().into();
        if let LabError::Io { source, .. } = error {
            record["errno"] = source.raw_os_error().into();
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_recorded_with_its_number() {
        let refused: Result<()> =
            Err::<(), _>(io::Error::from_raw_os_error(libc::EWOULDBLOCK)).context(|| "x".into());
        let record = record(1_500_000_000, &GuestWork::UnloadModule, &refused);
        assert_eq!(record["at_s"], 1.5);
        assert_eq!((&record["done"], &record["errno"]), (&false.into(), &libc::EWOULDBLOCK.into()));
        assert_eq!(record["action"], "unload_module");
    }

    #[test]
    fn the_kernel_knows_the_module_by_its_file() {
        let plan = Plan { module: Some("/x/ccc-test.ko".into()), ..Plan::default() };
        assert_eq!(module_name(&plan), "ccc_test");
    }
}
