// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! From the command line to a daemon that serves.
use std::{
    collections::BTreeMap,
    fs,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    admin::{
        authorization::Authorization,
        channel::{self, CommandReceiver},
        http,
    },
    args::Args,
    coupling::Coupling,
    daemon::activation::{Activated, CONTROL},
    daemon::check,
    daemon::refuse,
    daemon::sandbox,
    daemon::server::{Parts, Server, Taps},
    daemon::signals::Hangups,
    event_loop::clock::{self, Clock},
    event_loop::foreign,
    event_loop::open_files,
    event_loop::timetravel,
    logging::with_cause,
    settings::{
        Sandbox, Settings,
        aside::put_aside,
        config,
        lock::{Lock, LockError},
        state::{State, StateError},
        writer::{Found, StateWriter},
    },
    tap::{host::Host, kernel::Kernel, laboratory::Laboratory, thread::Thread},
    vhost_user::listener::{self, Bound, Endpoint},
};

/// The settings the command line asks for.
pub fn settings(args: &Args) -> Result<Settings> {
    let mut settings = match (&args.config, &args.socket_path) {
        (Some(file), _) => read(file)?,
        (None, Some(socket)) => Settings::single(socket),
        (None, None) => Settings::single(Path::new("")),
    };
    if args.control.is_some() {
        settings.daemon.control.clone_from(&args.control);
    }
    Ok(settings)
}

fn read(file: &Path) -> Result<Settings> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(config::parse(&file.display().to_string(), &text)?)
}

/// Serves until the daemon is told to end.
pub fn serve(args: &Args, mut settings: Settings) -> Result<()> {
    // Whoever sends it at the start, for a configuration that has just been written, ends nobody.
    let hangups = Hangups::catch()?;
    open_files::raise_files();
    let mut activated = Activated::take()?;
    log::info!("{}", begins(args, settings.daemon.control.as_deref(), &activated));
    for warning in check::warnings_of_settings(&settings) {
        log::warn!("{warning}");
    }
    let daemon = settings.daemon.clone();
    refuse(&check::faults(&settings, activated.has(CONTROL)))?;
    let mut kept = daemon.state.as_deref().map(kept).transpose()?;
    if let Some((_, found)) = &mut kept {
        found.unused = found.state.apply(&mut settings);
        found.behind |= found.state != found.there;
        for line in settings.overridden() {
            log::warn!("{line}");
        }
    }
    let authorization = check::authorization(&daemon)?;
    // The laboratory's has no tenants, and a controller to connect to.
    let sandbox = if args.time_travel.is_some() { Sandbox::Off } else { daemon.sandbox };
    settings.daemon.sandbox = sandbox;
    sandbox::confine_files(&mut settings);
    foreign::prepare();
    let mut coupling = Coupling::new(settings);
    // The first: two daemons would take turns with the sockets of VMs.
    let operators = operators(daemon.control.as_ref(), &authorization, &mut activated)?;
    let endpoints = endpoints(args, coupling.settings(), &mut activated)?;
    activated.end()?;
    let clock = clock(args)?;
    let state_writer = kept.map(|(path, found)| StateWriter::start(path, found)).transpose()?;
    let (listener, _bound) = operators.unzip();
    let control = listener.map(|listener| (listener, authorization));
    let commands = commands(http::Listeners { control, metrics: daemon.metrics })?;
    let taps = taps(args, &mut coupling)?;
    let parts = Parts { coupling, endpoints, clock, commands, state_writer, taps, hangups };
    let server = Server::new(parts)?;
    if args.time_travel.is_none() {
        sandbox::confine_calls(sandbox);
    }
    Ok(server.run()?)
}

/// Which daemon of which configuration it is, and where operators find it.
fn begins(args: &Args, control: Option<&Path>, activated: &Activated) -> String {
    let told =
        |path: Option<&Path>| path.map_or("none".to_owned(), |path| path.display().to_string());
    let control = match activated.has(CONTROL) {
        true => "passed by the service manager".to_owned(),
        false => told(control),
    };
    format!(
        "ccc-vhost {}: configuration {}, control socket {control}",
        ccc_settings::VERSION,
        told(args.config.as_deref())
    )
}

/// The state file, ours alone, and what is in it.  What is wrong with it stops nobody's flows:
/// it is told, and the daemon goes on with what can be read.
fn kept(path: &Path) -> Result<(&Path, Found)> {
    let (lock, unlocked) = match Lock::take(path) {
        Ok(lock) => (Some(lock), None),
        Err(error @ LockError::InUse { .. }) => return Err(error.into()),
        Err(error) => (None, Some(with_cause(&error))),
    };
    let (state, damage) = State::load_readable(path);
    // Nothing of it is left out; its directory may come, with a file that is put aside then.
    let damage = damage.filter(|error| !matches!(error, StateError::NoDirectory { .. }));
    let aside = damage.as_ref().filter(|_| path.is_file()).and_then(|_| damaged_aside(path));
    let trouble = damage.map(|error| match &aside {
        Some(aside) => error.of_aside(path, aside),
        None => with_cause(&error),
    });
    if let Some(why) = &trouble {
        log::warn!("{}", check::going_on(why));
    }
    if let Some(why) = &unlocked {
        log::warn!("{}", check::unkept(path, why));
    }
    let behind = aside.is_some();
    let there = if behind { State::default() } else { state.clone() };
    Ok((path, Found { lock, unlocked, state, there, behind, trouble, unused: Vec::new() }))
}

/// Puts the file aside, which the next change would replace; where it is, if that can be.
fn damaged_aside(path: &Path) -> Option<PathBuf> {
    let aside = put_aside(path, "damaged");
    aside.inspect_err(|error| log::warn!("cannot put {} aside: {error}", path.display())).ok()
}

/// One endpoint for each VM.  Where one cannot be listened on that is told and tried again, for
/// its trouble is not the others'; the command line names but one.
fn endpoints(
    args: &Args,
    settings: &Settings,
    activated: &mut Activated,
) -> Result<BTreeMap<usize, Endpoint>> {
    let mut endpoints = BTreeMap::new();
    for (number, vm) in &settings.vms {
        let endpoint = match args.fd.or_else(|| activated.socket(&vm.name)) {
            Some(fd) => Endpoint::inherited(fd)?,
            None if args.socket_path.is_some() => Endpoint::bind(&vm.socket)?,
            None => Endpoint::bind(&vm.socket).unwrap_or_else(Endpoint::Failed),
        };
        endpoints.insert(*number, endpoint);
    }
    Ok(endpoints)
}

/// Where operators connect, if anywhere, and the socket's file if it is ours.
fn operators(
    path: Option<&PathBuf>,
    authorization: &Authorization,
    activated: &mut Activated,
) -> Result<Option<(UnixListener, Option<Bound>)>> {
    let manner = authorization.manner();
    if let Some(fd) = activated.socket(CONTROL) {
        let listener = listener::inherited(fd, manner.backlog)?;
        tell_other_path(path, &listener);
        return Ok(Some((listener, None)));
    }
    let Some(path) = path else { return Ok(None) };
    let (listener, bound) = listener::bind(path, manner)?;
    Ok(Some((listener, Some(bound))))
}

/// VMs are served all the same.
fn tell_other_path(configured: Option<&PathBuf>, listener: &UnixListener) {
    let passed = listener.local_addr().ok();
    let passed = passed.as_ref().and_then(|address| address.as_pathname());
    let (Some(configured), Some(passed)) = (configured, passed) else { return };
    if configured != passed {
        log::warn!(
            "nobody listens on {0}: the service manager passes {1} as the control socket; set \
             [daemon] control to {1}, or ListenStream= of the socket's unit to {0}",
            configured.display(),
            passed.display()
        );
    }
}

/// What clients ask for, if there can be any.
fn commands(listeners: http::Listeners) -> Result<Option<CommandReceiver>> {
    if listeners.control.is_none() && listeners.metrics.is_none() {
        return Ok(None);
    }
    let (receiver, sender) = channel::pair()?;
    http::serve(listeners, sender)?;
    Ok(Some(receiver))
}

/// The clock the command line asks for.
fn clock(args: &Args) -> Result<Clock> {
    Ok(match &args.time_travel {
        Some(controller) => Clock::TimeTravel(timetravel::Client::connect(controller)?),
        None => Clock::monotonic()?,
    })
}

/// What looks at taps: the laboratory, or a thread of ours.
fn taps(args: &Args, coupling: &mut Coupling) -> Result<Taps> {
    if let Some(socket) = &args.taps {
        let failed = || format!("cannot connect to the taps at {}", socket.display());
        return Ok(Taps::Laboratory(Laboratory::connect(socket).with_context(failed)?));
    }
    if args.time_travel.is_some() {
        return Ok(Taps::None);
    }
    let configuration = args.config.as_deref().or(args.socket_path.as_deref());
    let mut kernel = Kernel::new(configuration.unwrap_or(Path::new("")))
        .context("cannot ask the kernel for interfaces")?;
    let left_over = kernel.left_over().unwrap_or_else(|error| {
        log::warn!("cannot look for taps that an earlier daemon holds: {error}");
        Vec::new()
    });
    if !left_over.is_empty() {
        log::info!("taps that an earlier daemon holds: {}", left_over.join(", "));
    }
    coupling.watches_mut().take_over(clock::monotonic(), left_over);
    let keep = coupling.settings().daemon.keep_holds;
    Ok(Taps::Thread(Thread::start(Box::new(kernel), keep)?))
}
