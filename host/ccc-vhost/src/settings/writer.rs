// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Keeps what operators change, on disk, in a thread of its own.
//!
//! The event loop hands over each change with its answer and goes on; a client
//! is answered when its change is on disk, or when that failed.  All changes
//! that have come meanwhile are written at once: the file is written beside its
//! place, synced, and renamed, so that there is a whole one at any time.  What
//! changes nothing is not written.
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use serde_json::Value;
use thiserror::Error;

use super::{
    aside::put_strange_aside,
    lock::{Lock, LockError},
    state::{self, Change, State},
    unused::{Of, Unused},
};
use crate::logging::with_cause;

/// Time until what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Time the last changes have when the daemon ends.
const PARTING: Duration = Duration::from_secs(2);

/// A change is in force and will be forgotten.
#[derive(Clone, Debug, Error)]
#[error("in force, but not kept for the next start: cannot write {}: {why}", path.display())]
pub struct NotKept {
    path: PathBuf,
    why: String,
}

/// What is done when a change is on disk, or could not be written.
type Done = Box<dyn FnOnce(Result<(), NotKept>) + Send>;

/// A change to keep, and what waits for that.
struct Order {
    change: Change,
    done: Done,
}

/// What is wrong with the file.
#[derive(Debug, Default)]
struct Told {
    /// Why changes are not kept, if so.
    unkept: Option<String>,
    /// What was found in its place and is not in force, which no change mends.
    found: Vec<String>,
}

/// The same, for both threads.
#[derive(Clone, Debug, Default)]
struct Trouble(Arc<Mutex<Told>>);

impl Trouble {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line each.
    fn lines(&self) -> Vec<String> {
        let told = self.told();
        told.unkept.iter().chain(&told.found).cloned().collect()
    }
}

/// The event loop's end of the thread that writes.
#[derive(Debug)]
pub struct StateWriter {
    orders: Option<Sender<Order>>,
    ended: Receiver<()>,
    trouble: Trouble,
    unused: Vec<Unused>,
}

/// The file as it was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The right to write it, if that could be had.
    pub lock: Option<Lock>,
    /// Why not, if so: it is tried again.
    pub unlocked: Option<String>,
    /// What of it is in force.
    pub state: State,
    /// What is known to be in it.
    pub there: State,
    /// The file holds something else: it was put aside, or a part of it is forgotten.
    pub behind: bool,
    /// Why it cannot be read, or not all of it.
    pub trouble: Option<String>,
    /// What of that is not in force.
    pub unused: Vec<Unused>,
}

impl StateWriter {
    /// Keeps changes from what was `found` on in the file at `path`.
    pub fn start(path: &Path, found: Found) -> io::Result<StateWriter> {
        let Found { lock, unlocked, state, there, behind, trouble: found, unused } = found;
        let (orders, taken) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let mut store = Store::new(path, state);
        (store.lock, store.known, store.behind) = (lock, there.json(), behind);
        *store.trouble.told() = Told { unkept: unlocked, found: found.into_iter().collect() };
        let trouble = store.trouble.clone();
        let run = move || {
            // Dropped when the last change is written.
            let _end: Sender<()> = end;
            store.run(&taken);
        };
        std::thread::Builder::new().name("state".to_owned()).spawn(run)?;
        Ok(StateWriter { orders: Some(orders), ended, trouble, unused })
    }

    /// Why changes are not kept, or those of before not used, if so; the latter until the
    /// daemon starts again, or somebody has settled that: a line each.
    pub fn trouble(&self) -> Option<String> {
        let mut lines = self.trouble.lines();
        lines.extend(self.unused.iter().map(Unused::to_string));
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// There are changes of what is not there, which can only be forgotten.
    pub fn has_left(&self, of: &Of) -> bool {
        self.unused.iter().any(|unused| unused.is_all_of(of))
    }

    /// Keeps a change, and does something after that; nothing if this ends meanwhile.
    /// Never waits: whoever asks for changes is admitted in a bounded number.
    pub fn keep(
        &mut self,
        change: Change,
        done: impl FnOnce(Result<(), NotKept>) + Send + 'static,
    ) {
        self.unused.retain(|unused| !unused.is_settled_by(&change));
        let order = Order { change, done: Box::new(done) };
        if let Some(orders) = &self.orders {
            // Without the thread there is nobody left to wait.
            drop(orders.send(order));
        }
    }
}

impl Drop for StateWriter {
    /// What was handed over is written before the daemon ends, if the disk is
    /// not stuck.
    fn drop(&mut self) {
        drop(self.orders.take());
        if self.ended.recv_timeout(PARTING) == Err(RecvTimeoutError::Timeout) {
            log::warn!("the state file cannot be written in time; the last changes may be lost");
        }
    }
}

/// The file, and what is to be in it.
#[derive(Debug)]
struct Store {
    path: PathBuf,
    /// The right to write it: without that, where it cannot be had, it is written all the same.
    lock: Option<Lock>,
    state: State,
    /// What is in the file, as it was read or written last.
    known: Value,
    /// The file is not as the state is.
    behind: bool,
    /// What was said of that last time, if it could not be kept.
    said: Option<String>,
    trouble: Trouble,
}

impl Store {
    fn new(path: &Path, state: State) -> Store {
        let (path, known, trouble) = (path.to_owned(), state.json(), Trouble::default());
        Store { path, lock: None, state, known, behind: false, said: None, trouble }
    }

    fn run(&mut self, orders: &Receiver<Order>) {
        drop(self.save());
        loop {
            let next = if self.behind || self.lock.is_none() {
                orders.recv_timeout(RETRY)
            } else {
                orders.recv().map_err(RecvTimeoutError::from)
            };
            let first = match next {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => {
                    drop(self.save());
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let batch: Vec<Order> = std::iter::once(first).chain(orders.try_iter()).collect();
            for order in &batch {
                self.behind |= self.state.note(&order.change);
            }
            let kept = self.save();
            for Order { done, .. } in batch {
                let failed = |why: &String| NotKept { path: self.path.clone(), why: why.clone() };
                done(kept.as_ref().copied().map_err(failed));
            }
        }
        drop(self.save());
    }

    /// Has the file for itself, and writes it if it has to be.
    fn save(&mut self) -> Result<(), String> {
        let unlocked = self.lock()?;
        self.write()?;
        self.said = None;
        self.trouble.told().unkept = unlocked;
        Ok(())
    }

    /// Takes the right to write the file, if it is not ours yet, or no more; why it cannot be had,
    /// where no other daemon has it.
    fn lock(&mut self) -> Result<Option<String>, String> {
        if self.lock.as_ref().is_some_and(|lock| !self.behind || lock.holds()) {
            return Ok(None);
        }
        self.lock = None;
        match Lock::take(&self.path) {
            Ok(lock) => {
                self.look_again()?;
                log::info!(
                    "state file {} is locked: no other daemon takes it",
                    self.path.display()
                );
                self.lock = Some(lock);
                Ok(None)
            }
            // It is that one's now, with what it has kept.
            Err(used @ LockError::InUse { .. }) => Err(self.fail(used.to_string(), &used)),
            Err(error) => {
                if self.behind {
                    self.look_again()?;
                }
                Ok(Some(with_cause(&error)))
            }
        }
    }

    /// Leaves whole what others may have put into the file's place while it was not ours: it is
    /// not replaced, but put aside, and told until the next start.
    fn look_again(&mut self) -> Result<(), String> {
        let path = self.path.display();
        match put_strange_aside(&self.path, &self.known) {
            Ok(None) => {}
            Ok(Some(told)) => {
                log::warn!("{told}");
                self.trouble.told().found.push(told);
                self.behind = true;
            }
            Err(error) => {
                return Err(self.fail(format!("cannot put {path} aside: {error}"), &error));
            }
        }
        Ok(())
    }

    /// Writes the file if it has to be.
    fn write(&mut self) -> Result<(), String> {
        if !self.behind {
            return Ok(());
        }
        let (path, content) = (self.path.display(), self.state.json());
        if let Err(error) = replace(&self.path, &format!("{content:#}\n")) {
            return Err(self.fail(format!("cannot write {path}: {error}"), &error));
        }
        if self.said.is_some() {
            log::info!("state file {path} is written again: all changes are kept");
        }
        (self.known, self.behind) = (content, false);
        Ok(())
    }

    /// Tells that changes are not kept, or would not be, once for each reason.
    fn fail(&mut self, told: String, why: &impl ToString) -> String {
        let what = if self.behind { "are in force, but" } else { "that come are in force, but" };
        let line = format!(
            "changes {what} not kept for the next start: {told}; tried again every {} s",
            RETRY.as_secs()
        );
        if self.said.as_ref() != Some(&line) {
            log::warn!("{line}");
            self.said = Some(line);
        }
        self.trouble.told().unkept = Some(told);
        why.to_string()
    }
}

/// Puts a text into a file's place, all of it or nothing.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    // Whatever is there in its place is not written to: a link, or a pipe that nobody reads.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(state::directory(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn store(path: &Path) -> Store {
        Store::new(path, State::default())
    }

    fn change() -> Change {
        let changes = ccc_settings::Changes::read(json!({"weight": 2.5})).expect("right");
        Change::UpdateVm("a".to_owned(), changes)
    }

    #[test]
    fn f2_what_changes_nothing_is_not_written() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        let mut store = store(&path);
        store.save().expect("nothing to do");
        assert!(!path.exists());
        store.behind |= store.state.note(&change());
        store.save().expect("kept");
        assert_eq!(State::load(&path).expect("there"), store.state);
        let names = fs::read_dir(dir.path()).expect("directory").flatten();
        let mut names: Vec<_> = names.map(|there| there.file_name()).collect();
        names.sort();
        assert_eq!(names, ["state.json", "state.json.lock"], "nothing else beside it");
        fs::remove_file(&path).expect("removed");
        store.behind |= store.state.note(&change());
        store.save().expect("nothing to do");
        assert!(!path.exists(), "the same again");
    }

    #[test]
    fn what_is_not_in_force_is_told_until_it_is_settled() {
        let dir = tempfile::tempdir().expect("directory");
        let fields = |of, fields| Unused::fields(of, fields, "is not right");
        let of = |of| Unused::all(of, "gone");
        let (a, g) = (|| "a".to_owned(), || "g".to_owned());
        let unused = vec![
            fields(Of::Vm(a()), &["floor_mbit", "cap_mbit"]),
            fields(Of::Vm(a()), &["group"]),
            fields(Of::Group(a()), &["uplink", "uplink_rate_mbit"]),
            of(Of::Vm(g())),
            of(Of::Group(g())),
            of(Of::Rules),
        ];
        let path = dir.path().join("state.json");
        let mut writer =
            StateWriter::start(&path, Found { unused, ..Found::default() }).expect("started");
        assert!(writer.has_left(&Of::Vm(g())) && !writer.has_left(&Of::Vm(a())));
        fn changes<T: ccc_settings::Table>(value: serde_json::Value) -> ccc_settings::Changes<T> {
            ccc_settings::Changes::read(value).expect("right")
        }
        let cap = || changes(json!({"cap_mbit": 9}));
        for (change, left) in [
            (change(), 6),
            (Change::UpdateVm("b".to_owned(), cap()), 6),
            (Change::ResetGroup("b".to_owned()), 6),
            (Change::UpdateGroup(a(), changes(json!({"coupled": false}))), 6),
            (Change::UpdateGroup(a(), changes(json!({"uplink": null}))), 5),
            (Change::UpdateVm(a(), cap()), 4),
            (Change::UpdateVm(a(), changes(json!({"group": null}))), 3),
            (Change::ResetGroup(g()), 2),
            (Change::DeleteVm(g()), 1),
            (Change::SetRules(None), 0),
        ] {
            let what = format!("{change:?}");
            writer.keep(change, |kept| kept.expect("kept"));
            assert_eq!(writer.trouble().map_or(0, |told| told.lines().count()), left, "{what}");
        }
    }

    #[test]
    fn o2_what_another_daemon_has_locked_meanwhile_is_not_written() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        let other = Lock::take(&path).expect("free");
        let mut store = store(&path);
        store.behind |= store.state.note(&change());
        let told = store.save().expect_err("it is the other's");
        assert!(told.contains("in use by process"), "{told}");
        assert_eq!((store.trouble.lines(), path.exists()), (vec![told], false));
        drop(other);
        store.save().expect("ours now");
        assert_eq!(store.trouble.lines(), [""; 0]);
        assert!(matches!(Lock::take(&path), Err(LockError::InUse { .. })));
        assert_eq!(State::load(&path).expect("there"), store.state);
    }

    #[test]
    fn why_changes_are_not_kept_is_said_of_those_that_there_are() {
        let dir = tempfile::tempdir().expect("directory");
        let mut store = store(&dir.path().join("state.json"));
        let said = |store: &Store| store.said.clone().unwrap_or_default();
        let other = Lock::take(&store.path).expect("free");
        store.save().expect_err("it is the other's");
        assert!(said(&store).starts_with("changes that come are in force, but not kept"));
        store.behind |= store.state.note(&change());
        store.save().expect_err("it still is");
        assert!(said(&store).starts_with("changes are in force, but not kept"), "{}", said(&store));
        store.behind = false;
        drop(other);
        store.save().expect("ours now");
        assert_eq!(said(&store), "", "the next reason is said again");
        fs::create_dir(&store.path).expect("in the way");
        store.behind = true;
        store.save().expect_err("a directory");
        assert!(said(&store).contains("cannot write"), "{}", said(&store));
    }

    #[test]
    fn what_could_not_be_written_is_tried_again() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("later/state.json");
        let mut store = store(&path);
        store.behind |= store.state.note(&change());
        store.save().expect_err("no directory");
        assert!(store.trouble.lines()[0].contains("cannot write"));
        fs::create_dir(dir.path().join("later")).expect("made");
        store.save().expect("kept now");
        assert_eq!(store.trouble.lines(), [""; 0]);
        assert_eq!(State::load(&path).expect("there"), store.state);
    }

    /// What another daemon has kept there, which has ended since.
    fn of_another(path: &Path) -> State {
        let mut state = State::default();
        let cap = ccc_settings::Changes::read(json!({"cap_mbit": 7})).expect("right");
        assert!(state.note(&Change::UpdateVm("b".to_owned(), cap)));
        replace(path, &state.json().to_string()).expect("written");
        state
    }

    /// The one that was put aside, as it is told.
    fn aside(store: &Store) -> State {
        let told = store.trouble.lines().concat();
        assert!(told.contains("another one came into its place"), "{told}");
        let beside = told.rsplit_once("the file as it was found is ").expect("told").1;
        State::load(Path::new(beside)).expect("whole")
    }

    #[test]
    fn o2_what_another_daemon_has_kept_meanwhile_is_put_aside() {
        let dir = tempfile::tempdir().expect("directory");
        let mut store = store(&dir.path().join("state.json"));
        let other = Lock::take(&store.path).expect("free");
        store.save().expect_err("it is the other's");
        let kept = of_another(&store.path);
        drop(other);
        store.save().expect("ours now");
        assert_eq!(aside(&store), kept);
        assert_eq!(State::load(&store.path).expect("there"), store.state, "what is in force");
        store.behind |= store.state.note(&change());
        store.save().expect("kept");
        assert_eq!(aside(&store), kept, "no change mends that");
    }

    #[test]
    fn what_cannot_be_locked_takes_no_other_files_place_either() {
        let dir = tempfile::tempdir().expect("directory");
        fs::create_dir(dir.path().join("state.json.lock")).expect("in the way");
        let mut store = store(&dir.path().join("state.json"));
        let kept = of_another(&store.path);
        store.save().expect("nothing to do");
        assert_eq!(State::load(&store.path).expect("there"), kept);
        store.behind |= store.state.note(&change());
        store.save().expect("kept");
        assert_eq!(store.trouble.told().found.len(), 1);
        store.behind = true;
        store.save().expect("kept again");
        assert_eq!(store.trouble.told().found.len(), 1, "it was our own");
    }

    #[test]
    fn a_disk_that_comes_over_the_directory_keeps_what_is_on_it() {
        let dir = tempfile::tempdir().expect("directory");
        let (var, disk) = (dir.path().join("var"), dir.path().join("disk"));
        fs::create_dir(&var).and_then(|()| fs::create_dir(&disk)).expect("made");
        let kept = of_another(&disk.join("state.json"));
        let mut store = store(&var.join("state.json"));
        store.save().expect("nothing to do");
        fs::rename(&var, dir.path().join("below")).expect("hidden");
        fs::rename(&disk, &var).expect("in its place");
        store.behind |= store.state.note(&change());
        store.save().expect("kept");
        assert_eq!(aside(&store), kept);
        assert_eq!(State::load(&store.path).expect("there"), store.state);
        assert!(matches!(Lock::take(&store.path), Err(LockError::InUse { .. })));
    }
}
