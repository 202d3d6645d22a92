// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The log: to the journal with fields where there is one, else lines on standard error.
//!
//! Every line says in words whose matter it is.  Of a VM it has the field VM, too, of a group
//! GROUP, and of what somebody has asked for PEER.  What somebody has changed is told
//! whatever the level, with the field AUDIT.
use std::{
    error::Error,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use ccc_settings::LogLevel;
use env_filter::Filter;
use log::{LevelFilter, Log, Metadata, Record};
use systemd_journal_logger::JournalLog;

/// What is told if nobody says otherwise.
const USUAL: &str = "info";
/// Where lines of changes come from.
pub const AUDIT: &str = "audit";
/// What is told of all modules, as `LevelFilter` counts.
static LEVEL: AtomicUsize = AtomicUsize::new(LevelFilter::Info as usize);
/// Whether an operator has set it; RUST_LOG, which knows modules, counts until then.
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Tells what somebody has changed.
macro_rules! audit {
    ($($line:tt)+) => {
        log::info!(target: crate::logging::AUDIT, AUDIT = "change", $($line)+)
    };
}
pub(crate) use audit;

/// An error, and what it comes from.
pub fn with_cause(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Where lines go, and which.
struct Output {
    filter: Filter,
    to: Box<dyn Log>,
}

/// Begins to log.
pub fn start() {
    let words = std::env::var("RUST_LOG").unwrap_or_else(|_| USUAL.to_owned());
    let mut filter = env_filter::Builder::new();
    let wrong = filter.try_parse(&words).is_err();
    if wrong {
        filter = env_filter::Builder::new();
        filter.parse(USUAL);
    }
    let filter = filter.build();
    admit(filter.filter());
    // There is one logger, and this is it.
    drop(log::set_boxed_logger(Box::new(Output { filter, to: destination() })));
    if wrong {
        log::warn!(
            "invalid RUST_LOG: expected error, warn, info, debug or trace, or such of modules \
             (ccc_vhost::tap=debug), with commas between them, got {words:?}; it is as if it were \
             {USUAL}"
        );
    }
}

fn destination() -> Box<dyn Log> {
    if systemd_journal_logger::connected_to_journal() {
        if let Ok(journal) = JournalLog::new() {
            return Box::new(journal);
        }
    }
    // What is told is decided here.
    Box::new(env_logger::Builder::new().filter_level(LevelFilter::Trace).build())
}

/// Nothing below this comes so far as to be looked at; changes do.
fn admit(level: LevelFilter) {
    LEVEL.store(level as usize, Ordering::Relaxed);
    log::set_max_level(level.max(LevelFilter::Info));
}

/// The least important that is told now, of any module.
pub fn level() -> LogLevel {
    match LEVEL.load(Ordering::Relaxed) {
        0 | 1 => LogLevel::Error,
        2 => LogLevel::Warn,
        3 => LogLevel::Info,
        4 => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

/// Tells this and what is more important, of all modules, from now on.
pub fn set_level(level: LogLevel) {
    IS_SET.store(true, Ordering::Relaxed);
    admit(match level {
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warn => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Trace => LevelFilter::Trace,
    });
}

impl Log for Output {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.target() == AUDIT {
            true
        } else if IS_SET.load(Ordering::Relaxed) {
            metadata.level() as usize <= LEVEL.load(Ordering::Relaxed)
        } else {
            self.filter.enabled(metadata)
        }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.to.log(record);
        }
    }

    fn flush(&self) {
        self.to.flush();
    }
}
