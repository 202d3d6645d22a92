// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Monitoring systems, which ask over TCP and have no credentials: they are told the
//! metrics and nothing else, and can change nothing.
//!
//! Where nobody can listen, VMs are served all the same.
use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
    time::timeout,
};

use super::{
    ACCEPT_AGAIN, CONNECTION_PATIENCE,
    clients::{ClientSlot, Clients},
    exposition, format_of, protocol, refuse,
    routes::METRICS,
};
use crate::{
    admin::{
        ApiError, Command, Reply, authorization::Peer, channel::CommandSender, metrics::Format,
    },
    event_loop::open_files,
};

/// Most scrapers served at once; others wait to be accepted.
const CONNECTIONS: u64 = 256;
/// The part of all files the daemon may have open that they may take.
const FILES_PART: u64 = 16;
/// Time until one asks, where others wait: a scraper asks at once, and anybody can connect.
const ASKS_WITHIN: Duration = Duration::from_millis(50);
/// What was told so lately is told again: who has no credentials is to cost operators, whom
/// the same thread serves, and VMs next to nothing.
const FRESH: Duration = Duration::from_millis(500);
/// Time until it is tried again to listen.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The latest answer in each format.
type Latest = Mutex<BTreeMap<Format, (Instant, Response<Bytes>)>>;

/// Serves them, if they are to be; `trouble` is why nobody can listen.
pub async fn serve(
    address: Option<SocketAddr>,
    commands: &CommandSender,
    trouble: &Mutex<Option<String>>,
) {
    let Some(address) = address else { return };
    let listener = listen(address, trouble).await;
    let most = CONNECTIONS.min(open_files::files() / FILES_PART).max(1);
    let clients = Clients::new(usize::try_from(most).unwrap_or(usize::MAX), ASKS_WITHIN);
    let latest = Arc::new(Latest::default());
    loop {
        let slot = clients.next(None).await;
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(tokio::spawn(converse(stream, slot, commands.clone(), Arc::clone(&latest))))
            }
            Err(error) => {
                log::debug!("metrics: cannot accept: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// What is said where nobody can listen.
pub fn no_metrics(address: SocketAddr, error: &io::Error) -> String {
    format!(
        "no metrics: cannot listen on {address}: {error}; name another address in [daemon] metrics, \
         or free this one"
    )
}

/// Listens, when it can: the address may be in use, or not be there yet.
async fn listen(address: SocketAddr, trouble: &Mutex<Option<String>>) -> TcpListener {
    loop {
        let bound = TcpListener::bind(address).await;
        let why = bound.as_ref().err().map(|error| no_metrics(address, error));
        let before = std::mem::replace(&mut *trouble.lock().await, why.clone());
        match (bound, why) {
            (Ok(listener), _) => return listener,
            (Err(_), Some(why)) if before.is_none() => log::warn!("{why}"),
            _ => {}
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn converse(
    stream: TcpStream,
    slot: ClientSlot,
    commands: CommandSender,
    latest: Arc<Latest>,
) {
    let service = service_fn(|request| {
        let (commands, slot, latest) = (&commands, &slot, &latest);
        async move {
            let _busy = slot.busy();
            Ok::<_, Infallible>(respond(request, commands, latest).await.map(Full::new))
        }
    });
    // A place is for one answer: who asks on comes again, behind those who wait.
    let conversation = protocol().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        () = slot.asked_to_leave() => {}
        _ = timeout(CONNECTION_PATIENCE, conversation) => {}
    }
}

async fn respond(
    request: Request<Incoming>,
    commands: &CommandSender,
    latest: &Latest,
) -> Response<Bytes> {
    if request.uri().path() != METRICS {
        return refuse(&ApiError::NotHere(request.uri().path().to_owned()));
    }
    if request.method() != hyper::Method::GET {
        let method = request.method().to_string();
        return refuse(&ApiError::Method { method, allowed: "GET".to_owned() });
    }
    let format = format_of(&request);
    // Others wait for the same answer.
    let mut latest = latest.lock().await;
    match latest.get(&format) {
        Some((at, answer)) if at.elapsed() < FRESH => return answer.clone(),
        _ => {}
    }
    match commands.ask(Command::Metrics, Peer::own()).await {
        Ok(Reply::Metrics(view)) => {
            let answer = exposition(view, format);
            latest.insert(format, (Instant::now(), answer.clone()));
            answer
        }
        Ok(_) => refuse(&ApiError::Stopping),
        Err(error) => refuse(&error),
    }
}
