// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What each command asks and prints.
use std::{
    io::{self, Read, Write},
    time::Duration,
};

use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    args::{Args, Command, Group, Hook, Log, Set},
    client::{Client, ClientError, Patience, path},
    config::Config,
    doctor,
    domain::{self, DomainError, Host, MADE_BY_LIBVIRT},
    journal, manuals, tenant,
    tenant::TenantError,
    top::{self, Looks},
    trial, views,
};

/// Why a command fails.
#[derive(Debug, Error)]
pub enum Error {
    /// The daemon.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A domain.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// A part of this host.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// It is in use.
    #[error(
        "VM {0} has a front end, so it is not left over; detach the domain (cccctl detach {0} --live) \
         or stop it"
    )]
    InUse(String),
    /// So is a tenant.
    #[error(
        "tenant {0} is connected, so it is not left over; to couple it no longer: cccctl tenant \
         remove {0}"
    )]
    TenantInUse(String),
    /// libvirt is not to go on.
    #[error("{0}")]
    Refused(String),
    /// A trial.
    #[error("{0}")]
    Trial(String),
    /// Somebody else has changed what is tried.
    #[error(
        "group {0} was changed meanwhile, or which VMs it has, their weights, floors or caps, or whether one is \
         coupled, or there are rules, or somebody has ended the trial, so nothing was compared; the trial \
         has ended: see cccctl group {0}"
    )]
    Changed(String),
    /// What a trial has seen is of two daemons.
    #[error("the daemon was started again in the midst of a trial")]
    Restarted,
    /// Not all is well.
    #[error("not all is well")]
    Found,
    /// What is to be printed or written cannot be.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Runs a command.
pub fn run(args: &Args, out: &mut impl Write) -> Result<(), Error> {
    if let Command::Hook(hook) = &args.command {
        return match self::hook(args, hook, out) {
            refused @ Err(Error::Refused(_)) => refused,
            // libvirt would end a domain for it.
            done => {
                done.unwrap_or_else(|error| journal::log(&error));
                Ok(())
            }
        };
    }
    if let Command::Manuals { directory } = &args.command {
        return Ok(manuals::write(directory)?);
    }
    let patience = match &args.command {
        // The daemon may restart meanwhile.
        Command::Trial(_) => Patience { absent: Duration::from_secs(30), ..Patience::OPERATOR },
        _ => Patience::OPERATOR,
    };
    let client = Client::new(&args.socket, patience)?;
    let host = Host::new(&args.connect, &client);
    let (answer, text) = match &args.command {
        Command::Status | Command::Doctor => return examine(args, &client, out),
        Command::List => plain(client.get("/v1/vms")?, views::vms),
        Command::Show { vm } => show(&client, vm)?,
        Command::Flows { vm: Some(vm), .. } => {
            let flows = all_flows(&client, &path("vms", vm))?;
            let text = views::flows(&flows);
            (json!({"flows": flows}), text)
        }
        Command::Flows { vm: None, limit } => {
            plain(client.get(&format!("/v1/flows?limit={limit}"))?, views::largest)
        }
        Command::Log(log) => plain(self::log(&client, log)?, views::log),
        Command::Set(set) => self::set(&client, &host, set)?,
        Command::Reset { vm: Some(vm), .. } => reset(&client, &host, vm)?,
        Command::Reset { vm: None, group } => {
            let group = path("groups", group.as_deref().unwrap_or_default());
            plain(client.delete(&format!("{group}/changes"))?, views::group_reset)
        }
        Command::Groups => plain(client.get("/v1/groups")?, views::groups),
        Command::Group(group) => plain(self::group(&client, group)?, views::one_group),
        Command::Rules => plain(client.get("/v1/rules")?, views::rules),
        Command::Top { interval, count } => {
            let interval = Duration::from_secs_f64(*interval);
            let looks = Looks { interval, count: *count, form: args.form() };
            return top::run(&client, looks, out);
        }
        Command::Trial(asked) => {
            let report = trial::run(&client, asked)?;
            (json!(report), trial::text(&report))
        }
        Command::Attach(attach) => done(host.attach(attach)?),
        Command::Detach(detach) => done(host.detach(detach)?),
        Command::Remove { vm } => plain(remove(&client, vm)?, views::vm),
        Command::Tenant { what } => plain(tenant::run(&client, what)?, tenant::view(what)),
        Command::Sync { domain: Some(domain) } => plain(host.sync(domain)?, views::vm),
        Command::Sync { domain: None } => done(host.sync_all()?),
        Command::Watch => return watch(args),
        // See above.
        Command::Hook(_) | Command::Manuals { .. } => return Ok(()),
    };
    Ok(args.form().print(out, &answer, &text)?)
}

/// What is wrong, in whole or in short; an error if anything is.
fn examine(args: &Args, client: &Client, out: &mut impl Write) -> Result<(), Error> {
    let (mut status, vms) = (client.get("/v1/status")?, client.get("/v1/vms")?);
    let mut findings = doctor::findings(&args.socket, &status, &vms, &client.get("/v1/groups")?);
    findings.extend(doctor::alone::of_this_host());
    if matches!(args.command, Command::Doctor) {
        args.form().print(out, &json!({"findings": findings}), &doctor::text(&findings))?;
    } else {
        status["vms"] = vms["vms"].clone();
        let well = match findings.len() {
            0 => doctor::text(&[]),
            count => format!("not all is well ({count}): cccctl doctor says what\n"),
        };
        status["findings"] = json!(findings.len());
        let text = views::status(&status) + &well;
        args.form().print(out, &status, &text)?;
    }
    if findings.is_empty() { Ok(()) } else { Err(Error::Found) }
}

/// What was done, a line each, and as it is printed for people.
fn done(text: String) -> (Value, String) {
    (json!({"done": text.lines().collect::<Vec<_>>()}), text)
}

fn say(out: &mut impl Write, text: &str) -> Result<(), Error> {
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// How long libvirt waits for a hook of ours, whatever the daemon does.
fn hook_patience(operation: &str, config: &Config) -> Patience {
    // A start is told of but once, and the daemon may be coming back.
    let absent = if operation == "prepare" { config.patience / 2 } else { Duration::ZERO };
    Patience::in_all(config.patience, absent)
}

/// Nothing fails here but what is refused on purpose.
fn hook(args: &Args, hook: &Hook, out: &mut impl Write) -> Result<(), Error> {
    let mut description = Vec::new();
    io::stdin().read_to_end(&mut description)?;
    let (config, wrong) = Config::load(&args.config);
    if let Some(wrong) = wrong {
        journal::log(&wrong);
    }
    let client = Client::new(&args.socket, hook_patience(&hook.operation, &config))?;
    let host = Host::new(&args.connect, &client);
    let required_by = config.require.then_some(args.config.as_path());
    let outcome = host.hook(hook, &String::from_utf8_lossy(&description), required_by);
    for warning in outcome.warnings {
        journal::log(&warning);
    }
    if let Some(reason) = outcome.refused {
        return Err(Error::Refused(reason));
    }
    say(out, &outcome.description.unwrap_or_default())
}

/// Ends with libvirt; a service manager starts it again.
fn watch(args: &Args) -> Result<(), Error> {
    // Others wait while it waits.
    let patience = Patience { answer: Duration::from_secs(2), ..Patience::OPERATOR };
    let client = Client::new(&args.socket, patience)?;
    let mut told = |name: &str, done: Result<&str, DomainError>| match done {
        Ok(done) => journal::say(&format!("{name}: {done}")),
        Err(error) => journal::say(&format!("{name}: {error}")),
    };
    Ok(Host::new(&args.connect, &client).watch(&mut told)?)
}

/// Changes a VM; of a domain of ours its metadata, which are the truth, change too.
fn set(client: &Client, host: &Host<'_>, set: &Set) -> Result<(Value, String), Error> {
    let path = path("vms", &set.vm);
    let changed = match client.patch(&path, &json!(set.changes.0)) {
        Err(error) if !error.is_in_force() => return Err(error.into()),
        changed => changed,
    };
    // What is in force and not kept is told without the VM.
    let vm = changed.as_ref().map_or_else(|_| client.get(&path).unwrap_or_default(), Value::clone);
    let tenant = vm["tenant"].as_str();
    if tenant.is_some_and(|place| !place.starts_with("vsock:")) {
        // Parts of the host are no domains.
        return Ok(plain(changed?, views::vm));
    }
    let is_no_domain = vm["added"] == false && !host.may_run(&set.vm);
    match host.note(set) {
        Ok(false) => {}
        Ok(true) if domain::names_passing_tap(set) => journal::say(&format!(
            "in force until domain {0} stops: its next start is as before, and its interface has another \
             name then, for libvirt makes those that begin with `{MADE_BY_LIBVIRT}`; to have it for ever: \
             <target dev='NAME'/> in its <interface>, and from its next start on cccctl set {0} --tap NAME",
            set.vm
        )),
        Ok(true) => journal::say(&format!(
            "in force until domain {0} stops: only the metadata of the running one say so, and its next \
             start is as before; to have it then, too: cccctl attach {0}{1}",
            set.vm,
            set.changes.said()
        )),
        // It is a VM of somebody else's.
        Err(DomainError::Virsh(error)) if error.is_no_domain() => {}
        // Few guests with an agent are libvirt's, nor are VMs of the configuration as a rule, and no
        // VM is where there is none.
        Err(DomainError::Virsh(error))
            if error.is_no_libvirt()
                && (tenant.is_some() || is_no_domain || !host.is_installed()) => {}
        Err(error) => journal::say(&format!(
            "in force; if {} is a libvirt domain, its metadata do not say so, and it does not last: \
             {error}",
            set.vm
        )),
    }
    Ok(plain(changed?, views::vm))
}

/// Has a VM as the daemon's configuration says; of a domain the metadata say more.
fn reset(client: &Client, host: &Host<'_>, vm: &str) -> Result<(Value, String), Error> {
    let answer = client.delete(&format!("{}/changes", path("vms", vm)))?;
    if host.is_told_of(vm) {
        journal::say(&format!(
            "{vm} is a libvirt domain that runs: what its metadata want is told again and undoes \
             this; change them with cccctl set {vm}"
        ));
    }
    Ok(plain(answer, views::vm_reset))
}

/// It is a part of this host, or a guest with an agent.
fn is_tenant(vm: &Value) -> bool {
    vm["tenant"].is_string()
}

/// Removes a VM that nobody uses; how it was.
fn remove(client: &Client, vm: &str) -> Result<Value, Error> {
    let path = path("vms", vm);
    let there = client.get(&path)?;
    if there["connected"] == true {
        let in_use = if is_tenant(&there) { Error::TenantInUse } else { Error::InUse };
        return Err(in_use(vm.to_owned()));
    }
    Ok(client.delete(&path)?)
}

fn plain(answer: Value, view: fn(&Value) -> String) -> (Value, String) {
    let text = view(&answer);
    (answer, text)
}

fn show(client: &Client, vm: &str) -> Result<(Value, String), Error> {
    let path = path("vms", vm);
    let mut answer = client.get(&path)?;
    let flows = all_flows(client, &path)?;
    let text = format!("{}\n{}", views::vm(&answer), views::flows(&flows));
    // `flows` of a VM is their number.
    answer["flow_list"] = Value::Array(flows);
    Ok((answer, text))
}

/// All pages of a VM's flows.
pub fn all_flows(client: &Client, path: &str) -> Result<Vec<Value>, Error> {
    let (mut flows, mut from) = (Vec::new(), Some(0));
    while let Some(slot) = from {
        let mut page = client.get(&format!("{path}/flows?from={slot}"))?;
        if let Value::Array(more) = page["flows"].take() {
            flows.extend(more);
        }
        // Only onwards, whatever the daemon says.
        from = page["next"].as_u64().filter(|next| *next > slot);
    }
    Ok(flows)
}

fn group(client: &Client, Group { name, changes }: &Group) -> Result<Value, ClientError> {
    let path = path("groups", name);
    if changes.0.is_empty() { client.get(&path) } else { client.patch(&path, &json!(changes.0)) }
}

fn log(client: &Client, Log { changes }: &Log) -> Result<Value, ClientError> {
    let path = "/v1/log";
    if changes.0.is_empty() { client.get(path) } else { client.patch(path, &json!(changes.0)) }
}
