// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tenants without a device: parts of this host, and guests with an agent.  To the daemon they
//! are VMs whose front end is `ccc-bpf`, which asks it which there are to be.
use std::path::Path;

use ccc_settings::{Changes, Fault, SocketPath, VmSettings, check_name, is_same_place};
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    args::{AddTenant, Tenant},
    client::{Client, ClientError, path},
    journal, mounts, netns, sockets, views,
};

/// Where the daemon listens, unless something else is said: no QEMU can enter there.
const SOCKETS: &str = "/run/ccc/tenant";
/// That of VMs, where an older package has made no other directory.
const OF_VMS: &str = "/run/ccc/vm";

/// Why a tenant is not as it was to be.
#[derive(Debug, Error)]
pub enum TenantError {
    /// The daemon.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What was asked for.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// It is something else.
    #[error("{0} is a VM with the device; cccctl remove {0}, or detach its domain")]
    Vm(String),
    /// So is this one, which cannot be removed while the daemon runs.
    #[error(
        "{0} is a VM with the device, and in the configuration: take another name, or remove it there"
    )]
    Configured(String),
    /// Nobody has the name.
    #[error("no tenant `{0}`; cccctl tenant list says which there are")]
    None(String),
    /// It is served elsewhere.
    #[error(
        "{name} is served on socket {socket}; cccctl tenant remove {name} first, or leave out \
         --vhost-socket"
    )]
    OtherSocket {
        /// Its name.
        name: String,
        /// Where it is served.
        socket: String,
    },
    /// Another tenant has the name.
    #[error(
        "{name} is the tenant {place}; cccctl tenant remove {name} first, or take another name"
    )]
    Taken {
        /// Its name.
        name: String,
        /// What it is.
        place: String,
    },
}

/// Does what was asked for; what the daemon answers.
pub fn run(client: &Client, what: &Tenant) -> Result<Value, TenantError> {
    match what {
        Tenant::Add(add) => {
            check_name("name", &add.name)?;
            let (path, settings) = (path("vms", &add.name), settings(add)?);
            match client.get(&path) {
                Ok(there) => {
                    let mut changes = json!(settings);
                    is_same(add, &there, &changes["tenant"])?;
                    // What is not said stays as somebody has set it since, and its place as
                    // somebody has written it.
                    changes["tenant"] = there["tenant"].clone();
                    Ok(client.patch(&path, &changes)?)
                }
                Err(ClientError::Told { status: 404, .. }) => {
                    let spec = spec(add, &settings)?;
                    let answer = client.put(&path, &spec)?;
                    warning(add, &spec).iter().for_each(|told| journal::say(told));
                    Ok(answer)
                }
                Err(error) => Err(error.into()),
            }
        }
        Tenant::List => {
            let mut answer = client.get("/v1/vms")?;
            if let Some(vms) = answer["vms"].as_array_mut() {
                vms.retain(|vm| !vm["tenant"].is_null());
            }
            Ok(answer)
        }
        Tenant::Remove { name } => {
            let path = path("vms", name);
            match client.get(&path) {
                Ok(there) if there["tenant"].is_null() => Err(is_vm(name, &there)),
                Ok(_) => Ok(client.delete(&path)?),
                Err(ClientError::Told { status: 404, .. }) => Err(TenantError::None(name.clone())),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// What has this name is no tenant.
fn is_vm(name: &str, there: &Value) -> TenantError {
    let is_configured = there["added"] == false;
    let is_vm = if is_configured { TenantError::Configured } else { TenantError::Vm };
    is_vm(name.to_owned())
}

/// Whether the tenant that has this name is the one that is to have it.
fn is_same(add: &AddTenant, there: &Value, place: &Value) -> Result<(), TenantError> {
    let name = add.name.clone();
    let socket = add.vhost_socket.as_ref().map(|socket| json!(socket));
    match there["tenant"].as_str() {
        None => Err(is_vm(&name, there)),
        Some(other) if !place.as_str().is_some_and(|place| is_same_place(other, place)) => {
            Err(TenantError::Taken { name, place: other.to_owned() })
        }
        Some(_) if socket.is_some_and(|socket| socket != there["socket"]) => {
            Err(TenantError::OtherSocket { name, socket: views::word(&there["socket"]) })
        }
        Some(_) => Ok(()),
    }
}

/// How that is printed.
pub fn view(what: &Tenant) -> fn(&Value) -> String {
    if matches!(what, Tenant::List) { views::vms } else { views::vm }
}

/// A cgroup's path as the kernel tells it, also of one by its directory.
fn below_the_root(path: &str) -> &str {
    let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let below = roots.iter().find_map(|root| Path::new(path).strip_prefix(root).ok()?.to_str());
    match below.unwrap_or(path).trim_matches('/') {
        "" if path.starts_with('/') => "/",
        below => below,
    }
}

/// A process's namespace is another's once its number is used again: maybe the host's.
fn check_lasts(netns: &str) -> Result<(), Fault> {
    let Some(of) = netns::of_a_process(&netns::file(netns)) else { return Ok(()) };
    let expected = "a name or a path that stays with its namespace";
    let remedy = format!(
        "{} is a process's: remove a link to it, give it a name with `ip netns attach NAME PID`, \
         then --netns NAME",
        of.display()
    );
    Err(Fault::new("--netns", expected, &json!(netns)).remedy(remedy))
}

/// A file in a cgroup is none.
fn check_cgroup(path: &str, root: Option<&Path>) -> Result<(), Fault> {
    let file = root.map(|root| root.join(below_the_root(path)));
    match file.filter(|file| file.is_file()) {
        None => Ok(()),
        Some(file) => {
            let remedy = format!("{} is a file in one: name its directory", file.display());
            Err(Fault::new("--cgroup", "the path of a cgroup", &json!(path)).remedy(remedy))
        }
    }
}

/// What is asked for, and what of this host it is.
fn settings(add: &AddTenant) -> Result<Changes<VmSettings>, Fault> {
    let AddTenant { cgroup, netns, vsock, settings, .. } = add;
    netns.as_deref().map_or(Ok(()), check_lasts)?;
    let root = mounts::of_type("cgroup2").unwrap_or_default().into_iter().next();
    cgroup.as_deref().map_or(Ok(()), |path| check_cgroup(path, root.as_deref()))?;
    let cgroup = cgroup.iter().map(|path| format!("cgroup:{}", below_the_root(path)));
    let netns = netns.iter().map(|name| format!("netns:{name}"));
    let mut settings = settings.0.clone();
    for place in cgroup.chain(netns) {
        settings.set("tenant", json!(place))?;
    }
    if let Some(at) = vsock {
        let set = settings.set("tenant", json!(format!("vsock:{at}")));
        let expected = "a CID from 3 on, or the path of its VMM's socket";
        set.map_err(|_| Fault::new("--vsock", expected, &json!(at)))?;
    }
    Ok(settings)
}

/// The first directory that is there, or would be.
fn directory(of: [&str; 2]) -> &Path {
    let [first, second] = of.map(Path::new);
    if !first.is_dir() && second.is_dir() { second } else { first }
}

/// Who else may take the tenant's place, as an operator reads it.
fn warning(add: &AddTenant, spec: &Value) -> Option<String> {
    let socket = Path::new(spec["socket"].as_str()?);
    let name = &add.name;
    let again = format!("cccctl tenant remove {name}, and cccctl tenant add {name} as now");
    if add.vhost_socket.is_none() && socket.parent() == Some(Path::new(OF_VMS)) {
        return Some(format!(
            "there is no {SOCKETS}, so {name} is served in {OF_VMS}, where every QEMU may take its \
             place; systemd-tmpfiles --create makes it, then {again}"
        ));
    }
    let group = sockets::open_to(socket)?;
    Some(format!(
        "whoever is of the group {group} may connect to {} and take {name}'s place; {again}, but \
         without --vhost-socket",
        socket.display()
    ))
}

/// A tenant as the daemon takes it; what has its default is not said, as with domains.
fn spec(add: &AddTenant, settings: &Changes<VmSettings>) -> Result<Value, Fault> {
    let socket = directory([SOCKETS, OF_VMS]).join(format!("{}.sock", add.name));
    let socket = match &add.vhost_socket {
        Some(socket) => socket.clone(),
        None => SocketPath::read("socket", Some(json!(socket)))?,
    };
    let mut spec = json!(settings.besides(&VmSettings::default()));
    spec["socket"] = json!(socket);
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(options: &[&str]) -> Option<Box<AddTenant>> {
        let line = ["cccctl", "tenant", "add", "web"].iter().chain(options);
        match Args::try_parse_from(line).ok()?.command {
            Command::Tenant { what: Tenant::Add(add) } => Some(add),
            _ => None,
        }
    }

    fn add(options: &[&str]) -> Option<Value> {
        let add = parsed(options)?;
        spec(&add, &settings(&add).ok()?).ok()
    }

    #[test]
    fn a_tenant_is_one_place() {
        let web = add(&["--cgroup", "/system.slice/nginx.service", "--weight", "3"]);
        let web = web.expect("a tenant");
        assert_eq!(web["tenant"], "cgroup:system.slice/nginx.service");
        assert_eq!(
            (&web["weight"], &web["socket"]),
            (&json!(3.0), &json!("/run/ccc/tenant/web.sock"))
        );
        for directory in ["/sys/fs/cgroup/a.slice/b", "/sys/fs/cgroup/unified/a.slice/b/"] {
            let by_directory = add(&["--cgroup", directory]).expect("a tenant");
            assert_eq!(by_directory["tenant"], "cgroup:a.slice/b");
        }
        for root in ["/", "/sys/fs/cgroup", "/sys/fs/cgroup/", "/sys/fs//cgroup/unified"] {
            assert_eq!(add(&["--cgroup", root]).expect("all there are")["tenant"], "cgroup:/");
        }
        assert_eq!(add(&["--cgroup", ""]), None);
        assert_eq!(add(&["--netns", "w"]).expect("a tenant")["tenant"], "netns:w");
        let by_process = parsed(&["--netns", "/proc/7/ns/net"]).expect("right");
        let refused = settings(&by_process).expect_err("of a process").to_string();
        assert!(refused.contains("ip netns attach NAME PID"), "{refused}");
        let dir = tempfile::tempdir().expect("directory");
        let link = dir.path().join("docker");
        std::os::unix::fs::symlink("/proc/7/ns/net", &link).expect("a link");
        assert_eq!(add(&["--netns", link.to_str().expect("text")]), None);
        assert_eq!(add(&["--vsock", "/run/a"]).expect("a tenant")["tenant"], "vsock:/run/a");
        assert_eq!(add(&["--vsock", "7"]).expect("a tenant")["tenant"], "vsock:7");
        for odd in ["a", "2", "0", "-1", "4294967296", "/run/../a"] {
            assert_eq!(add(&["--vsock", odd]), None, "{odd}");
        }
        assert_eq!(add(&[]), None);
        assert_eq!(add(&["--netns", "w", "--cgroup", "c"]), None);
        assert_eq!(add(&["--cgroup", "../c"]), None);
    }

    #[test]
    fn a_file_in_a_cgroup_is_none() {
        let dir = tempfile::tempdir().expect("directory");
        let check = |path: &str| check_cgroup(path, Some(dir.path()));
        std::fs::write(dir.path().join("cgroup.procs"), "").expect("written");
        std::fs::create_dir(dir.path().join("a.slice")).expect("made");
        for path in ["cgroup.procs", "/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"] {
            let refused = check(path).expect_err("a file").to_string();
            assert!(refused.ends_with("is a file in one: name its directory"), "{refused}");
        }
        assert_eq!((check("a.slice"), check("to.come")), (Ok(()), Ok(())));
        assert_eq!(check_cgroup("cgroup.procs", None), Ok(()), "nobody can tell");
    }

    #[test]
    fn who_else_may_take_a_tenant_s_place_is_told() {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (tenants, vms) = (at("tenant"), at("vm"));
        let directory = || directory([&tenants, &vms]);
        assert_eq!(directory(), Path::new(&tenants), "where it is made");
        std::fs::create_dir(&vms).expect("made");
        assert_eq!(directory(), Path::new(&vms), "as an older package has it");
        std::fs::create_dir(&tenants).expect("made");
        assert_eq!(directory(), Path::new(&tenants));
        let of_vms = json!({"socket": "/run/ccc/vm/web.sock"});
        let told = warning(&parsed(&["--netns", "w"]).expect("right"), &of_vms).expect("told");
        assert!(told.contains("no /run/ccc/tenant, so web is served in /run/ccc/vm"), "{told}");
        let elsewhere = parsed(&["--netns", "w", "--vhost-socket", "/nowhere/s"]).expect("right");
        assert_eq!(warning(&elsewhere, &json!({"socket": "/nowhere/s"})), None);
    }

    #[test]
    fn nobody_loses_a_name_to_a_tenant() {
        let taken = |there: Value, options: &[&str]| {
            let add = parsed(&[&["--netns", "web"], options].concat()).expect("right");
            let there = json!({"tenant": there, "socket": "/run/web"});
            is_same(&add, &there, &json!("netns:web")).err().map(|error| error.to_string())
        };
        assert_eq!(taken(json!("netns:web"), &[]), None);
        assert_eq!(taken(json!("netns:web"), &["--vhost-socket", "/run/web"]), None);
        assert_eq!(taken(json!("netns:/var/run/netns/web"), &[]), None, "written otherwise");
        assert!(taken(Value::Null, &[]).expect("an error").starts_with("web is a VM"));
        let other = taken(json!("cgroup:a.slice"), &[]).expect("an error");
        assert!(other.starts_with("web is the tenant cgroup:a.slice; cccctl tenant remove web"));
        let moved = taken(json!("netns:web"), &["--vhost-socket", "/run/b"]).expect("an error");
        assert!(moved.starts_with("web is served on socket /run/web; cccctl tenant remove web"));
    }

    #[test]
    fn a_tenant_is_not_offered_what_it_cannot_be() {
        let help = Args::try_parse_from(["cccctl", "tenant", "add", "--help"]).expect_err("help");
        let help = help.to_string();
        assert!(help.contains("--weight") && help.contains("--cgroup"), "{help}");
        assert!(!help.contains("--tenant") && !help.contains("--device"), "{help}");
        assert_eq!(add(&["--netns", "w", "--device", "off"]), None);
    }
}
