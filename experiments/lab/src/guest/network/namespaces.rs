// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Network namespaces of a guest, by name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Context, LabError, Result};
use crate::guest::threads::joined;

/// The namespaces beside the first one.
#[derive(Default)]
pub struct Namespaces(BTreeMap<String, File>);

impl Namespaces {
    /// Makes one, which `ip -n` knows too.
    pub fn add(&mut self, name: &str) -> Result<()> {
        self.0.insert(name.to_owned(), new_namespace(name)?);
        Ok(())
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Moves the calling thread into a namespace.
    pub fn enter(&self, name: &str) -> Result<()> {
        let unknown = || LabError::protocol("guest", format!("there is no namespace {name}"));
        let file = self.0.get(name).ok_or_else(unknown)?;
        setns(file, CloneFlags::CLONE_NEWNET).context(|| format!("entering {name}"))
    }

    /// Does `job` in each.
    pub fn in_each(&self, job: impl Fn() -> Result<()> + Sync) -> Result<()> {
        self.names().try_for_each(|name| self.within(name, &job))
    }

    /// Does `job` in a namespace, on a thread of its own.
    pub fn within<T: Send>(&self, name: &str, job: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            joined(scope.spawn(|| {
                self.enter(name)?;
                job()
            }))
        })
    }
}

fn new_namespace(name: &str) -> Result<File> {
    let directory = Path::new("/run/netns");
    fs::create_dir_all(directory).on("making", directory)?;
    let path = directory.join(name);
    File::create(&path).on("creating", &path)?;
    let make = || -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNET).context(|| "unshare".into())?;
        let own = Some("/proc/thread-self/ns/net");
        mount(own, &path, None::<&str>, MsFlags::MS_BIND, None::<&str>).on("mounting", &path)
    };
    thread::scope(|scope| joined(scope.spawn(make)))?;
    File::open(&path).on("opening", &path)
}
