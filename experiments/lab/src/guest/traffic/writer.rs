// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A flow's application: writes all it can, or at a pace, as its script says.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Priority, TcpCongestion};

use super::socket::set_option;
use crate::guest::clock::Clock;
use crate::plan::{Flow, Pace, Step};
use crate::units::SECOND_NS;

/// Offered at once; the socket's buffer decides how much of it is taken.
static CHUNK: [u8; 256 * 1024] = [0; 256 * 1024];
/// An application with a pace writes this often.
const PERIOD_NS: u64 = 10_000_000;
/// Most a scripted flow has written and not sent: a change of pace is not to
/// wait for a long queue in the socket.
const UNSENT: libc::c_int = 128 * 1024;

/// Writes until all is written (true) or it is time to stop (false).
pub fn write(stream: &mut TcpStream, flow: &Flow, clock: Clock) -> io::Result<bool> {
    let mut left = flow.bytes.unwrap_or(u64::MAX);
    if flow.script.is_empty() {
        return greedy(stream, &mut left, flow.stop_ns, clock);
    }
    set_option(stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT)?;
    let mut pace = Pace::Greedy;
    let mut begin = flow.start_ns;
    for (step, end) in phases(flow) {
        if let Some(step) = step {
            begin = begin.max(step.at_ns);
            change(stream, step)?;
            pace = step.pace.unwrap_or(pace);
        }
        stream.set_write_timeout(None)?;
        let finished = match pace {
            Pace::Greedy => greedy(stream, &mut left, end, clock)?,
            Pace::Rate(rate) => paced(stream, &mut left, rate, begin, end, clock)?,
        };
        if finished {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The phases of a flow, each with its end; the first has no step.
fn phases(flow: &Flow) -> impl Iterator<Item = (Option<&Step>, Option<u64>)> {
    let steps = [None].into_iter().chain(flow.script.iter().map(Some));
    let ends = flow.script.iter().map(|step| Some(step.at_ns)).chain([None]);
    let stop = flow.stop_ns;
    let bounded = move |end: Option<u64>| match (end, stop) {
        (Some(end), Some(stop)) => Some(end.min(stop)),
        (end, stop) => end.or(stop),
    };
    steps.zip(ends.map(bounded))
}

fn change(stream: &TcpStream, step: &Step) -> io::Result<()> {
    if let Some(priority) = step.priority {
        setsockopt(stream, Priority, &(priority as libc::c_int))?;
    }
    if let Some(name) = &step.congestion_control {
        setsockopt(stream, TcpCongestion, &name.into())?;
    }
    Ok(())
}

/// Writes all it can until `end`; true once nothing is left.
fn greedy(
    stream: &mut TcpStream,
    left: &mut u64,
    end: Option<u64>,
    clock: Clock,
) -> io::Result<bool> {
    while *left > 0 {
        if let Some(end) = end {
            let now = clock.now();
            if now >= end {
                return Ok(false);
            }
            stream.set_write_timeout(Some(Duration::from_nanos(end - now)))?;
        }
        offer(stream, CHUNK.len(), left)?;
    }
    Ok(true)
}

/// Writes `rate` bytes a second from `begin` to `end`. What TCP does not take
/// in time is not made up for.
fn paced(
    stream: &mut TcpStream,
    left: &mut u64,
    rate: u64,
    begin: u64,
    end: Option<u64>,
    clock: Clock,
) -> io::Result<bool> {
    let mut due = 0;
    for tick in 1.. {
        let at = begin + tick * PERIOD_NS;
        if end.is_some_and(|end| at > end) || rate == 0 {
            break;
        }
        let until_now = u128::from(rate) * u128::from(tick * PERIOD_NS) / u128::from(SECOND_NS);
        let amount = until_now as u64 - due;
        due = until_now as u64;
        if clock.is_past(at) {
            continue;
        }
        clock.sleep_until(at);
        if amount > 0 {
            stream.set_write_timeout(Some(Duration::from_nanos(PERIOD_NS)))?;
            offer(stream, amount as usize, left)?;
        }
        if *left == 0 {
            return Ok(true);
        }
    }
    clock.sleep_until(end.unwrap_or(u64::MAX / 4));
    Ok(false)
}

/// Offers TCP so much at once, for as long as the socket's timeout allows.
fn offer(stream: &mut TcpStream, amount: usize, left: &mut u64) -> io::Result<()> {
    let part = amount.min(CHUNK.len()).min(usize::try_from(*left).unwrap_or(usize::MAX));
    match stream.write(&CHUNK[..part]) {
        Ok(written) => *left -= written as u64,
        Err(e) if e.kind() == ErrorKind::WouldBlock => (),
        Err(e) => return Err(e),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(script: Vec<Step>, stop_ns: Option<u64>) -> Flow {
        Flow { script, stop_ns, ..Flow::default() }
    }

    #[test]
    fn a_phase_ends_where_the_next_begins_or_the_flow_stops() {
        let step = |at_ns| Step { at_ns, ..Step::default() };
        let ends = |flow: &Flow| phases(flow).map(|(_, end)| end).collect::<Vec<_>>();
        assert_eq!(ends(&flow(vec![step(5), step(9)], None)), [Some(5), Some(9), None]);
        assert_eq!(ends(&flow(vec![step(5), step(9)], Some(7))), [Some(5), Some(7), Some(7)]);
    }
}
