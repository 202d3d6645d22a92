// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests to the daemon's control socket.
use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1,
    header::{CONNECTION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::{
    net::UnixStream,
    runtime::Runtime,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// How long to wait for the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until it answers, all tries together.
    pub answer: Duration,
    /// Until it is there at all: it may be about to start.
    pub absent: Duration,
    /// For all requests together, if there is an end to it.
    pub deadline: Option<Instant>,
}

impl Patience {
    /// That of somebody who asked for something.
    pub const OPERATOR: Patience =
        Patience { answer: Duration::from_secs(10), absent: Duration::ZERO, deadline: None };

    /// That of somebody who is waited for: so long for all together.
    pub fn in_all(time: Duration, absent: Duration) -> Patience {
        Patience { answer: time, absent, deadline: Instant::now().checked_add(time) }
    }

    fn left(&self) -> Duration {
        let left = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(self.answer, |left| left.min(self.answer))
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No socket there.
    #[error(
        "no control socket at {0}; start the daemon (systemctl start ccc-vhost; if it runs, somebody \
         has removed its socket: systemctl restart ccc-vhost), or name its socket with --socket or \
         CCC_CONTROL"
    )]
    Missing(PathBuf),
    /// Nobody listens.
    #[error("nobody listens on {0}; start the daemon (systemctl start ccc-vhost)")]
    Refused(PathBuf),
    /// Not allowed.
    #[error(
        "may not open {0}; become root or a member of the operators' group ([daemon] operators)"
    )]
    Permission(PathBuf),
    /// Some other failure.
    #[error("cannot connect to {path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The runtime could not be made.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
    /// The conversation broke off.
    #[error(
        "the daemon broke off before it had answered ({source}); was it ended? or is {socket} no \
         control socket, but a VM's?"
    )]
    BrokenOff {
        /// The socket.
        socket: PathBuf,
        /// How.
        source: hyper::Error,
    },
    /// It answers something else.
    #[error("the daemon does not speak HTTP as expected: {0}")]
    Http(String),
    /// No answer in time.
    #[error(
        "the daemon at {socket} has not answered within {} s; does it hang? VMs go on meanwhile, \
         and systemd starts one that hangs again (systemctl status ccc-vhost says so){}",
        .waited.as_secs_f64(), may_be_done(*.asked_change)
    )]
    Silent {
        /// Its socket.
        socket: PathBuf,
        /// For so long.
        waited: Duration,
        /// It may have been asked to change something.
        asked_change: bool,
    },
    /// The daemon refuses.
    #[error("{told}")]
    Told {
        /// Status of its answer.
        status: u16,
        /// What it says.
        told: String,
    },
}

/// The daemon.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Patience,
    runtime: Runtime,
}

impl Client {
    /// The daemon at `socket`.
    pub fn new(socket: &Path, patience: Patience) -> Result<Client, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Runtime)?;
        Ok(Client { socket: socket.to_owned(), patience, runtime })
    }

    fn silent(&self, waited: Duration, asked_change: bool) -> ClientError {
        ClientError::Silent { socket: self.socket.clone(), waited, asked_change }
    }

    /// The daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that listens: another one after a restart.
    pub fn listener(&self) -> Result<Option<i32>, ClientError> {
        self.runtime.block_on(async {
            let stream = UnixStream::connect(&self.socket)
                .await
                .map_err(|error| refused(&self.socket, error))?;
            Ok(stream.peer_cred().ok().and_then(|peer| peer.pid()))
        })
    }

    /// What is at a path.
    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.ask("GET", path, None)
    }

    /// Changes what is at a path; how it is then.
    pub fn patch(&self, path: &str, change: &Value) -> Result<Value, ClientError> {
        self.ask("PATCH", path, Some(change))
    }

    /// Has something at a path; how it is then.
    pub fn put(&self, path: &str, what: &Value) -> Result<Value, ClientError> {
        self.ask("PUT", path, Some(what))
    }

    /// Removes what is at a path; how it was.
    pub fn delete(&self, path: &str) -> Result<Value, ClientError> {
        self.ask("DELETE", path, None)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let (Patience { absent, answer, .. }, left) = (self.patience, self.patience.left());
        if left.is_zero() {
            // Nobody waits for what would come of it.
            return Err(self.silent(answer, false));
        }
        let began = Instant::now();
        let (status, answer) = self.runtime.block_on(async {
            // What the last try came to, for whoever has no time for another.
            let mut last = Err(self.silent(answer, method != "GET"));
            let tries = async {
                loop {
                    last = exchange(&self.socket, method, path, body).await;
                    if !worth_another(&last, began.elapsed() < absent) {
                        return;
                    }
                    sleep(PAUSE).await;
                }
            };
            // Out of time: that is what is told.
            let _ = timeout(left, tries).await;
            last
        })?;
        if status == 200 {
            return Ok(answer);
        }
        Err(ClientError::Told { status, told: refusal(status, &answer) })
    }
}

impl ClientError {
    /// What was asked for is in force, though the daemon's next start will not know.
    pub fn is_in_force(&self) -> bool {
        matches!(self, ClientError::Told { status: 500, .. })
    }

    /// The daemon has answered, and does not do what it was asked for.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ClientError::Told { status: 400..500, .. })
    }
}

/// What was sent waits in the daemon's socket.
fn may_be_done(asked_change: bool) -> &'static str {
    if asked_change {
        "; the change may still be made, when it goes on: cccctl show or group tells"
    } else {
        ""
    }
}

/// The daemon is busy, or not there yet.
fn worth_another(done: &Result<(u16, Value), ClientError>, may_come: bool) -> bool {
    match done {
        Ok((status, _)) => *status == 503,
        Err(ClientError::Missing(_) | ClientError::Refused(_)) => may_come,
        // It may have done it, and does no harm to do it again: requests say how something
        // is to be, and not how it is to change.
        Err(ClientError::BrokenOff { .. }) => may_come,
        // Too many wait to be accepted.
        Err(ClientError::Connect { source, .. }) => source.kind() == io::ErrorKind::WouldBlock,
        Err(_) => false,
    }
}

/// What a daemon says that does not do what it is asked for.
fn refusal(status: u16, answer: &Value) -> String {
    let Some(told) = answer["error"].as_str() else {
        return format!("the daemon answers {status}");
    };
    // What is not known here either is not sent, or asked for.
    match told.contains("an unknown key") || told.starts_with("nothing at `") {
        true => format!("{told}; the daemon is older than this program: upgrade ccc-vhost"),
        false => told.to_owned(),
    }
}

/// The path of something with a name, which may hold anything.
pub fn path(of: &str, name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escaped = name.bytes().map(|byte| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    format!("/v1/{of}/{}", escaped.collect::<String>())
}

async fn exchange(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Value), ClientError> {
    let http = |error: &dyn std::fmt::Display| ClientError::Http(error.to_string());
    let broken_off = |error| broken_off(socket, error);
    let stream = UnixStream::connect(socket).await.map_err(|error| refused(socket, error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(broken_off)?;
    // Ends with the exchange: the daemon's places are for those who ask.
    let mut conversation = JoinSet::new();
    conversation.spawn(connection);
    let mut request =
        Request::builder().method(method).uri(path).header(HOST, "ccc").header(CONNECTION, "close");
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default()));
    let request = request.body(body).map_err(|error| http(&error))?;
    let answer = sender.send_request(request).await.map_err(broken_off)?;
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.map_err(broken_off)?.to_bytes();
    let value = serde_json::from_slice(&bytes).map_err(|error| http(&error))?;
    Ok((status, value))
}

fn broken_off(socket: &Path, error: hyper::Error) -> ClientError {
    if error.is_parse() {
        ClientError::Http(error.to_string())
    } else {
        ClientError::BrokenOff { socket: socket.to_owned(), source: error }
    }
}

fn refused(socket: &Path, error: io::Error) -> ClientError {
    let path = socket.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => ClientError::Missing(path),
        io::ErrorKind::ConnectionRefused => ClientError::Refused(path),
        io::ErrorKind::PermissionDenied => ClientError::Permission(path),
        _ => ClientError::Connect { path, source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(path("vms", "web-1.a_b"), "/v1/vms/web-1.a_b");
        assert_eq!(path("vms", "a/b c?"), "/v1/vms/a%2Fb%20c%3F");
    }

    #[test]
    fn a_daemon_that_does_not_know_a_setting_is_to_be_upgraded() {
        let told = |words: &str| refusal(400, &serde_json::json!({"error": words}));
        let unknown = "invalid cap_mbit: expected weight or group, got an unknown key";
        assert!(told(unknown).starts_with(unknown) && told(unknown).ends_with("upgrade ccc-vhost"));
        let nothing = "nothing at `/v1/flows`; docs/openapi.yaml lists what there is";
        assert!(told(nothing).starts_with(nothing) && told(nothing).ends_with("upgrade ccc-vhost"));
        assert_eq!(told("no VM `wbe`"), "no VM `wbe`");
        assert_eq!(refusal(418, &Value::Null), "the daemon answers 418");
    }

    #[test]
    fn what_went_wrong_says_what_to_do() {
        let told = |kind: io::ErrorKind| refused(Path::new("/s"), kind.into()).to_string();
        assert!(told(io::ErrorKind::NotFound).contains("systemctl start ccc-vhost"));
        assert!(
            told(io::ErrorKind::NotFound).contains("if it runs, somebody has removed its socket: ")
        );
        assert!(told(io::ErrorKind::PermissionDenied).contains("become root"));
        assert!(told(io::ErrorKind::ConnectionRefused).contains("start the daemon"));
        assert!(told(io::ErrorKind::Other).starts_with("cannot connect to /s"));
    }
}
