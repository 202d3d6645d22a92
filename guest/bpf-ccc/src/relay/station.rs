// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VM's place at the relay: who comes in at its door, and the one agent that has the place.
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use log::Level;

use super::{
    agent::Agent,
    door::Door,
    lobby::{Greeted, Lobby, OtherRevision, ROOM},
};
use crate::{
    back_off::BackOff, front_end, log_limit::Limited, serve::now_us, wait::wait, wanted::Wanted,
};

/// How often it is looked whether to go on, and where nobody is there: a host may have a thousand
/// VMs whose agents are yet to come.
const LOOK: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_millis(500);
/// How often, whether somebody could take the place of the VM's socket.
const LOOK_AT_WAY_US: u64 = 1_000_000;
/// What comes sooner after what came before waits: no guest takes more of this host than what
/// it sends in bursts so far apart.
const PACE: Duration = Duration::from_micros(200);
/// How often the daemon is told of agents of another revision.
const TELL_US: u64 = 1_000_000;

/// A VM's place.
#[derive(Debug)]
pub struct Station<'a> {
    vm: &'a Wanted,
    lobby: Lobby,
    agent: Option<Agent<'a>>,
    /// Of connections to the daemon, whichever agent they are for.
    back_off: BackOff,
    /// Of the agent, and of those that are none.
    said: Limited,
    said_of_others: Limited,
    /// When the daemon may be told again who cannot have the place.
    tell_at_us: u64,
}

impl<'a> Station<'a> {
    /// The place of a VM, with nobody there.
    pub fn new(vm: &'a Wanted) -> Station<'a> {
        let (said, said_of_others) = (Limited::default(), Limited::default());
        let (lobby, agent, back_off) = (Lobby::default(), None, BackOff::default());
        Station { vm, lobby, agent, back_off, said, said_of_others, tell_at_us: 0 }
    }

    /// Whoever is there goes.
    pub fn clear(&mut self) {
        (self.lobby, self.agent) = (Lobby::default(), None);
    }

    /// Serves whom it is for, until it is to stop; fails once nobody can come in any more, and
    /// goes on at the next door with the agent that it has.
    pub fn run(&mut self, door: &Door, stop: &AtomicBool) -> Result<()> {
        let (mut look_at_us, mut look_at_way_us) = (0, now_us() + LOOK_AT_WAY_US);
        while !stop.load(Ordering::Relaxed) {
            if now_us() >= look_at_us {
                look_at_us = now_us() + self.rest().as_micros() as u64;
                ensure!(door.is_there(), "its socket was removed; it is made again");
            }
            if now_us() >= look_at_way_us {
                look_at_way_us = now_us() + LOOK_AT_WAY_US;
                door.check_way()?;
            }
            let (has_said, has_come) = self.wait(door)?;
            self.serve(has_said);
            let now_us = now_us();
            for stream in std::iter::from_fn(|| door.next()).take(ROOM) {
                self.lobby.enter(stream, now_us)?;
            }
            self.hear(now_us);
            // Nor do those that come and go take more of this host than one that sends.
            if has_come {
                thread::sleep(PACE);
            }
        }
        Ok(())
    }

    fn rest(&self) -> Duration {
        if self.agent.is_none() && self.lobby.wakes().next().is_none() { REST } else { LOOK }
    }

    /// Waits until somebody says something or comes; whether the agent has said something, and
    /// whether anybody has.
    fn wait(&self, door: &Door) -> Result<(bool, bool)> {
        let most = self.agent.as_ref().map_or(self.rest(), |agent| agent.patience(now_us()));
        let agent = self.agent.iter().map(Agent::wakes);
        let all = agent.chain([door.wakes()]).chain(self.lobby.wakes());
        let ready = wait(all, most)?;
        Ok((self.agent.is_some() && ready[0], ready.contains(&true)))
    }

    fn serve(&mut self, has_said: bool) {
        let Some(agent) = &mut self.agent else { return };
        if let Err(error) = agent.serve(has_said, &mut self.back_off, &mut self.said) {
            let name = &self.vm.name;
            let what = format_args!("tenant {name}: its flows go on alone: {error:#}");
            self.said.say(Level::Info, what);
            self.agent = None;
        }
    }

    /// Hears those that have come.
    fn hear(&mut self, now_us: u64) {
        for heard in self.lobby.hear(now_us) {
            if let Err(error) = heard.and_then(|greeted| self.take(greeted, now_us)) {
                if let Some(OtherRevision(revision)) = error.downcast_ref() {
                    self.tell_of(*revision, now_us);
                }
                let what = format_args!("tenant {}: a connection ends: {error:#}", self.vm.name);
                self.said_of_others.say(Level::Info, what);
            }
        }
    }

    /// Tells the daemon of an agent that cannot have the place, unless another has it.
    fn tell_of(&mut self, revision: u32, now_us: u64) {
        if self.agent.is_some() || now_us < self.tell_at_us {
            return;
        }
        self.tell_at_us = now_us + TELL_US;
        if let Err(error) = front_end::tell_of_agent(&self.vm.socket, revision) {
            log::debug!("tenant {}: the daemon does not hear of that: {error:#}", self.vm.name);
        }
    }

    /// Gives an agent the place, unless another has it and speaks.
    fn take(&mut self, greeted: Greeted, now_us: u64) -> Result<()> {
        let is_taken = self.agent.as_ref().is_some_and(|agent| agent.is_lively(now_us));
        ensure!(!is_taken, "another agent of the VM is connected");
        let agent = Agent::new(self.vm, greeted, now_us)?;
        let instead = if self.agent.is_some() { ", instead of one that is silent" } else { "" };
        let what = format_args!("tenant {}: its agent has connected{instead}", self.vm.name);
        self.said.say(Level::Info, what);
        self.agent = Some(agent);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::net::{UnixListener, UnixStream},
        path::PathBuf,
        time::Instant,
    };

    use ccc_proto::wire;

    use super::*;
    use crate::{
        frames::{Frame, Frames},
        relay::door,
    };

    fn say(peer: &mut Frames<File>, frame: &Frame) {
        assert!(peer.send(frame));
        peer.flush().expect("there");
    }

    fn hello() -> Frame {
        let extent = wire::Extent {
            first_slot: 0.into(),
            slots: 8.into(),
            grant_lines: 1.into(),
            reserved: 0.into(),
        };
        Frame::Hello(wire::REVISION, extent)
    }

    /// What happens at a VM's place where these peers do as they do.
    fn place(peers: impl FnOnce(&dyn Fn() -> Frames<File>)) {
        place_at("/nowhere".into(), peers);
    }

    /// The same where the daemon listens there.
    fn place_at(socket: PathBuf, peers: impl FnOnce(&dyn Fn() -> Frames<File>)) {
        let (sender, door) = door::passed().expect("a door");
        let enter = || {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            sender.pass(ours.into());
            Frames::over(theirs.into()).expect("a peer")
        };
        let vm = Wanted { name: "vm".into(), place: "vsock:3".into(), socket };
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (vm, stop) = (&vm, &stop);
            scope.spawn(move || Station::new(vm).run(&door, stop).expect("served"));
            let ends = Ends(stop);
            peers(&enter);
            drop(ends);
        });
    }

    /// Ends the thread whatever comes of the test.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the relay speaks to a peer within so long; not, if it has closed.
    fn is_served(peer: &mut Frames<File>, most: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < most {
            if peer.receive().is_err() {
                return false;
            }
            if peer.next().expect("a frame, or none").is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// However busy the machine is.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn an_agent_has_its_place_though_others_were_first_and_say_nothing() {
        place(|enter| {
            let _silent: Vec<_> = (0..4).map(|_| enter()).collect();
            let mut agent = enter();
            say(&mut agent, &hello());
            assert!(is_served(&mut agent, PATIENCE));
        });
    }

    #[test]
    fn an_agent_hears_more_often_of_the_relay_than_a_daemon_that_hangs() {
        let path = std::env::temp_dir().join(format!("ccc-bpf-hung-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let daemon = UnixListener::bind(&path).expect("bound");
        daemon.set_nonblocking(true).expect("set");
        place_at(path.clone(), |enter| {
            let mut agent = enter();
            say(&mut agent, &hello());
            let (mut heard, mut asked) = (0, Vec::new());
            let began = Instant::now();
            while heard < asked.len() + 5 {
                assert!(began.elapsed() < Duration::from_secs(20), "{heard} of {asked:?}");
                say(&mut agent, &Frame::Alive(0));
                thread::sleep(Duration::from_millis(20));
                // It takes the connections, and answers nobody.
                asked.extend(daemon.accept());
                agent.receive().expect("it has its place");
                while let Some(frame) = agent.next().expect("whole") {
                    heard += usize::from(matches!(frame, Frame::Alive(_)));
                }
            }
        });
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn an_agent_that_is_silent_makes_way_and_one_that_speaks_does_not() {
        // Until it was all done before the first one had been silent for long.
        let quick = (0..20).any(|_| {
            let mut was_quick = false;
            place(|enter| was_quick = makes_way(enter));
            was_quick
        });
        assert!(quick, "this machine never was");
    }

    /// Whether that could be judged.
    fn makes_way(enter: &dyn Fn() -> Frames<File>) -> bool {
        let mut first = enter();
        let began = Instant::now();
        say(&mut first, &hello());
        assert!(is_served(&mut first, PATIENCE));
        let mut early = enter();
        say(&mut early, &hello());
        if is_served(&mut early, Duration::from_millis(700)) {
            assert!(began.elapsed() > Duration::from_secs(1), "the first has spoken just now");
            return false;
        }
        thread::sleep(Duration::from_millis(1100));
        let mut second = enter();
        say(&mut second, &hello());
        assert!(is_served(&mut second, PATIENCE), "the first is silent");
        let gone = (0..100).any(|_| first.receive().is_err());
        assert!(gone, "it was closed");
        true
    }
}
