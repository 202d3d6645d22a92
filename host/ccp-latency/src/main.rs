// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CCP's agent (`portus`) behind its own Unix sockets: from a datapath's report to the window
//! that the agent's algorithm sets because of it, where the datapath reads it.
//!
//! `ccp-latency ROUNDS` prints one JSON document, for `make bench`.  An algorithm that does
//! nothing but set a window, in portus' own loop, with sockets that block (woken: the agent sleeps
//! in between) and sockets that do not (polled: both sides do nothing but read).
use std::{
    collections::HashMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use portus::{
    CongAlg, Datapath, DatapathInfo, DatapathTrait, Error, Flow, Report, Result, RunBuilder,
    ipc::{BackendBuilder, Blocking, Ipc, Nonblocking, unix::Socket},
    lang::Scope,
    serialize::{self, AsRawMsg},
};

/// One report is one window.
const PROGRAM: &str = "
    (def (Report (volatile acked 0)))
    (when true
        (:= Report.acked (+ Report.acked Ack.bytes_acked))
        (report)
    )";
/// Where portus has its sockets.
const SOCKETS: &str = "/tmp/ccp";
const AGENT: &str = "ccc-bench-agent";
const DATAPATH: &str = "ccc-bench-datapath";
/// Time between reports, so that each finds the agent asleep.
const PAUSE: Duration = Duration::from_micros(500);
/// What is not counted, for all is new.
const WARM_UP: usize = 100;
/// A header of 8 bytes, and then the program's number.
const PROGRAM_AT: std::ops::Range<usize> = 8..12;
const FLOW: u32 = 1;

/// Sets a window at each report.
struct Algorithm;

struct OneFlow<I: Ipc> {
    control: Datapath<I>,
    scope: Scope,
}

impl<I: Ipc> CongAlg<I> for Algorithm {
    type Flow = OneFlow<I>;

    fn name() -> &'static str {
        "bench"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("bench", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut control: Datapath<I>, _: DatapathInfo) -> OneFlow<I> {
        let scope = control.set_program("bench", None).expect("installed");
        OneFlow { control, scope }
    }
}

impl<I: Ipc> Flow for OneFlow<I> {
    fn on_report(&mut self, _: u32, report: Report) {
        let acked = report.get_field("Report.acked", &self.scope).expect("its program's report");
        self.control.update_field(&self.scope, &[("Cwnd", acked as u32)]).expect("sent");
    }
}

/// A datapath with one flow at an agent.
struct Client<M> {
    socket: Socket<M>,
    agent: PathBuf,
    program: u32,
    acked: u64,
}

impl<M: Send + Sync + 'static> Client<M> {
    fn start(agent: Socket<M>, socket: Socket<M>) -> Result<Client<M>> {
        let backend = BackendBuilder { sock: agent };
        // It ends with the process.
        RunBuilder::new(backend).default_alg(Algorithm).spawn_thread().run()?;
        let agent = PathBuf::from(SOCKETS).join(AGENT);
        let mut client = Client { socket, agent, program: 0, acked: 0 };
        client.send(&serialize::ready::Msg { id: 0 })?;
        client.receive(&mut [0; 1024]);
        client.send(&serialize::create::Msg {
            sid: FLOW,
            init_cwnd: 14_480,
            mss: 1448,
            src_ip: 0,
            src_port: 1,
            dst_ip: 0,
            dst_port: 2,
            cong_alg: None,
        })?;
        let mut bytes = [0; 1024];
        client.receive(&mut bytes);
        client.program = u32::from_le_bytes(bytes[PROGRAM_AT].try_into().expect("a word"));
        Ok(client)
    }

    fn send(&self, message: &impl AsRawMsg) -> Result<()> {
        self.socket.send(&serialize::serialize(message)?, &self.agent)
    }

    /// Waits for a message.
    fn receive(&self, bytes: &mut [u8]) {
        while self.socket.recv(bytes).is_err() {
            std::hint::spin_loop();
        }
    }

    /// From a report until the window is there.
    fn round(&mut self) -> Result<Duration> {
        self.acked += 1448;
        let began = Instant::now();
        let fields = vec![self.acked];
        self.send(&serialize::measure::Msg {
            sid: FLOW,
            program_uid: self.program,
            num_fields: 1,
            fields,
        })?;
        self.receive(&mut [0; 1024]);
        Ok(began.elapsed())
    }

    /// Median and 99th percentile, microseconds.
    fn measure(&mut self, rounds: usize, pause: Duration) -> Result<String> {
        let mut waits = Vec::new();
        for _ in 0..WARM_UP + rounds {
            waits.push(self.round()?);
            std::thread::sleep(pause);
        }
        waits.drain(..WARM_UP);
        waits.sort_unstable();
        let of = |percent: usize| waits[(waits.len() - 1) * percent / 100].as_secs_f64() * 1e6;
        Ok(format!("{{\"p50\": {}, \"p99\": {}}}", of(50), of(99)))
    }
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let rounds = rounds.ok_or_else(|| Error("expected: ccp-latency ROUNDS".to_owned()))?;
    let blocking = |name| Socket::<Blocking>::new(name);
    let woken = Client::start(blocking(AGENT)?, blocking(DATAPATH)?)?.measure(rounds, PAUSE)?;
    // Only this constructor makes a socket that does not block.
    let spinning = |name| Socket::<Nonblocking>::new_with_skbuf(name, None, None);
    let mut client = Client::start(spinning(AGENT)?, spinning(DATAPATH)?)?;
    let polled = client.measure(rounds, Duration::ZERO)?;
    println!("{{\"ccp_us\": {woken}, \"ccp_polled_us\": {polled}}}");
    for name in [AGENT, DATAPATH] {
        std::fs::remove_file(PathBuf::from(SOCKETS).join(name))?;
    }
    Ok(())
}
