// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What programs that nobody looks at have to say.
//!
//! libvirt keeps what a hook says only if it fails, which ours do not, so it goes to
//! the host's log as well.
use std::{
    fmt::Display,
    io::{self, Write},
    os::unix::net::UnixDatagram,
    process,
};

const SYSLOG: &str = "/dev/log";
/// Facility daemon, severity warning (RFC 3164).
const WARNING: u8 = 3 << 3 | 4;

/// Says it on standard error and in the host's log.  What cannot be said is done all
/// the same.
pub fn log(said: &dyn Display) {
    say(said);
    let _ = syslog(&one_line(said));
}

/// Says it on standard error.
pub fn say(said: &dyn Display) {
    let _ = writeln!(io::stderr(), "cccctl: {}", one_line(said));
}

/// Names and descriptions may hold anything, and logs have lines.
fn one_line(said: &dyn Display) -> String {
    let mut line = String::new();
    for letter in said.to_string().chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

fn syslog(said: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A log that is full is no reason to wait.
    socket.set_nonblocking(true)?;
    let line = format!("<{WARNING}>cccctl[{}]: {said}", process::id());
    socket.send_to(line.as_bytes(), SYSLOG).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_one_line() {
        assert_eq!(one_line(&"a\nb \x1b[2J ü"), "a\\nb \\u{1b}[2J ü");
    }
}
