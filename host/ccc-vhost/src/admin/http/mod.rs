// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The HTTP server on the control socket.
//!
//! hyper, on a runtime of one thread of its own: it is the HTTP implementation
//! of the language that is most used and looked after, has limits for whatever
//! a client can do slowly or too much of, and serves any number of clients
//! without a thread for each.  Clients are slow and many here, and the event
//! loop never waits for this thread.
use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::UnixStream, time::timeout};

use self::{
    clients::{ClientSlot, Clients, IDLE_ALLOWED, InRequest},
    crowd::{Crowd, NoPlace, Present, Rank},
    routes::BODY_MAX,
};
use super::{
    ApiError, Reply,
    authorization::{Authorization, Peer},
    channel::CommandSender,
    metrics::{self, Format},
    reply::MetricsView,
};
use crate::event_loop::open_files;

mod clients;
mod crowd;
pub mod routes;
mod scrape;

pub use scrape::no_metrics;

/// Most clients served at once; operators wait for places.
const CONNECTIONS: u64 = 2048;
/// The part of all files the daemon may have open that clients may take.
const FILES_PART: u64 = 4;
/// Longest time for the head of a request, and between two of them, where
/// there is room.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for the body of a request.
const BODY_PATIENCE: Duration = Duration::from_secs(2);
/// Time until another client is tried after one could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Longest time for a connection, whatever it does.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(30);
/// Most clients at once that are told that there is no place for them; more are closed at once.
const TURNED_AWAY: usize = 16;
/// Longest time for that.
const TURNING_AWAY: Duration = Duration::from_millis(200);
/// Time between two lines about clients that are no operators, or have no place.
const REFUSED_EVERY: Duration = Duration::from_secs(1);
/// Largest head of a request.
const HEAD_MAX: usize = 16 << 10;

/// What all requests share.
#[derive(Debug)]
struct Shared {
    authorization: Authorization,
    commands: CommandSender,
    /// When somebody was refused whom the log tells of.
    refused: Mutex<Option<Instant>>,
    /// Why monitoring systems find nobody, if so.
    no_metrics: Arc<tokio::sync::Mutex<Option<String>>>,
}

impl Shared {
    /// Whoever may not ask must not fill the log either.
    fn tell_refused(&self, why: &ApiError) {
        let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= REFUSED_EVERY) {
            *last = Some(Instant::now());
            log::warn!("control socket: {why}");
        }
    }
}

/// Where there are clients.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Operators, and which of them.
    pub control: Option<(UnixListener, Authorization)>,
    /// Monitoring systems.
    pub metrics: Option<SocketAddr>,
}

/// Serves the listeners from now on, in a thread that ends with the process.
pub fn serve(listeners: Listeners, commands: CommandSender) -> io::Result<()> {
    let Listeners { control, metrics } = listeners;
    control.iter().try_for_each(|(listener, _)| listener.set_nonblocking(true))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        runtime.block_on(async {
            let no_metrics = Arc::default();
            tokio::join!(
                operate(control, &commands, &no_metrics),
                scrape::serve(metrics, &commands, &no_metrics)
            )
        })
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(run)?;
    Ok(())
}

async fn operate(
    control: Option<(UnixListener, Authorization)>,
    commands: &CommandSender,
    no_metrics: &Arc<tokio::sync::Mutex<Option<String>>>,
) {
    let Some((listener, authorization)) = control else { return };
    let (commands, no_metrics) = (commands.clone(), Arc::clone(no_metrics));
    let shared = Shared { authorization, commands, refused: Mutex::default(), no_metrics };
    let shared = Arc::new(shared);
    if let Err(error) = accept(listener, shared).await {
        log::error!("control socket failed: {error}");
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>) -> io::Result<()> {
    let mut spare = Spare(listener.as_fd().try_clone_to_owned().ok());
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let most = CONNECTIONS.min(open_files::files() / FILES_PART).max(1);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (clients, crowd) = (Clients::new(most, IDLE_ALLOWED), Crowd::new(most));
    let turned_away = Clients::new(TURNED_AWAY, TURNING_AWAY);
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                failing = false;
                match welcome(&stream, &shared, &clients, &crowd).await {
                    Ok(guest) => drop(tokio::spawn(converse(stream, guest, Arc::clone(&shared)))),
                    Err(no_place) => {
                        shared.tell_refused(&no_place.why);
                        let slot = turned_away.free(None);
                        let clients = Arc::clone(&clients);
                        slot.map(|slot| tokio::spawn(turn_away(stream, no_place, clients, slot)));
                    }
                }
                spare.renew(&listener);
            }
            Err(error) => {
                if open_files::is_want_of_files(&error) && spare.0.take().is_some() {
                    continue;
                }
                // That passes; it is told once.
                if !std::mem::replace(&mut failing, true) {
                    log::warn!("control socket: cannot accept: {error}");
                }
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// A file descriptor kept for one client, so that an operator can remove VMs
/// when they have taken all others.
struct Spare(Option<OwnedFd>);

impl Spare {
    fn renew(&mut self, any: &impl AsFd) {
        if self.0.is_none() {
            self.0 = any.as_fd().try_clone_to_owned().ok();
        }
    }
}

/// HTTP/1.1 with the limits of any client.
fn protocol() -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_MAX);
    protocol
}

/// A client that has a place, and what is known of it.
struct Guest {
    admitted: Result<Peer, ApiError>,
    slot: ClientSlot,
    _present: Present,
}

/// A place for a client, unless those who may no more than it have what they may have: nobody
/// waits for it then.
async fn welcome(
    stream: &UnixStream,
    shared: &Shared,
    clients: &Arc<Clients>,
    crowd: &Arc<Crowd>,
) -> Result<Guest, NoPlace> {
    let peer = Peer::of(stream);
    let uid = peer.as_ref().map_or(u32::MAX, |peer| peer.uid);
    let access = peer.as_ref().ok().and_then(|peer| shared.authorization.check(peer).ok());
    let rank = Rank::of(access, peer.as_ref().is_ok_and(Peer::is_owner));
    let admitted = admit(peer, &shared.authorization);
    if let Err(error) = &admitted {
        shared.tell_refused(error);
    }
    let present = crowd.enter(rank, uid)?;
    let by = Some((rank, uid));
    let slot = match rank.waits() {
        true => clients.next(by).await,
        false => {
            let no_place = || NoPlace { why: ApiError::Busy, alike: (rank, None) };
            clients.free(by).ok_or_else(no_place)?
        }
    };
    Ok(Guest { admitted, slot, _present: present })
}

/// Says why there is no place, when asked something: an answer before that is no HTTP.  Who is
/// idle of those alike leaves then, so that who asks again has one: others are not in its way.
async fn turn_away(
    stream: UnixStream,
    NoPlace { why, alike }: NoPlace,
    clients: Arc<Clients>,
    _slot: ClientSlot,
) {
    let service = service_fn(|_: Request<Incoming>| async {
        clients.make_room_among(alike);
        Ok::<_, Infallible>(refuse(&why).map(Full::new))
    });
    let conversation = protocol().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    drop(timeout(TURNING_AWAY, conversation).await);
}

async fn converse(stream: UnixStream, guest: Guest, shared: Arc<Shared>) {
    let Guest { admitted, slot, _present } = guest;
    let service = service_fn(|request| {
        let (shared, admitted, slot) = (Arc::clone(&shared), &admitted, &slot);
        async move {
            // It is amid a request from its head on until the answer is written.
            let asked = slot.busy();
            let answer = match admitted {
                Ok(peer) => respond(request, peer, &shared).await,
                Err(error) => refuse(error),
            };
            Ok::<_, Infallible>(answer.map(|bytes| until_written(bytes, asked)))
        }
    });
    let conversation = protocol().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Who is asked to leave does not ask first: it would get no answer.
        biased;
        () = slot.asked_to_leave() => log::debug!("control client: idle while others wait"),
        ended = timeout(CONNECTION_PATIENCE, conversation) => match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::debug!("control client: {error}"),
            Err(_) => log::debug!("control client: took too long"),
        },
    }
}

/// Who has connected, if it may.
fn admit(peer: io::Result<Peer>, authorization: &Authorization) -> Result<Peer, ApiError> {
    let unknown = |error| ApiError::Forbidden(format!("who has connected is not known: {error}"));
    let peer = peer.map_err(unknown)?;
    authorization.check(&peer).map_err(ApiError::Forbidden)?;
    Ok(peer)
}

/// The body of an answer, which is dropped, with what keeps its client, when it is written.
fn until_written(bytes: Bytes, asked: InRequest) -> Full<Bytes> {
    struct Answer {
        bytes: Bytes,
        _asked: InRequest,
    }
    impl AsRef<[u8]> for Answer {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Full::new(Bytes::from_owner(Answer { bytes, _asked: asked }))
}

async fn respond<B>(request: Request<B>, by: &Peer, shared: &Shared) -> Response<Bytes>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let format = format_of(&request);
    match handle(request, by, shared).await {
        Ok(Reply::Metrics(view)) => exposition(view, format),
        Ok(reply) => match serde_json::to_vec(&reply) {
            Ok(body) => answer(StatusCode::OK, body),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into()),
        },
        Err(error) => refuse(&error),
    }
}

/// The format that a client asks for.
fn format_of<B>(request: &Request<B>) -> Format {
    let accepted = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    Format::accepted(accepted.unwrap_or_default())
}

fn exposition(view: MetricsView, format: Format) -> Response<Bytes> {
    match metrics::text(view, format) {
        Ok(text) => typed(StatusCode::OK, format.content_type(), text.into()),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into()),
    }
}

fn refuse(error: &ApiError) -> Response<Bytes> {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = answer(status, error.body().to_string().into());
    if let ApiError::Method { allowed, .. } = error {
        if let Ok(allowed) = HeaderValue::from_str(allowed) {
            response.headers_mut().insert(ALLOW, allowed);
        }
    }
    response
}

fn answer(status: StatusCode, body: Vec<u8>) -> Response<Bytes> {
    typed(status, "application/json", body)
}

fn typed(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn handle<B>(request: Request<B>, by: &Peer, shared: &Shared) -> Result<Reply, ApiError>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let body = read(body).await?;
    let command = routes::Request {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query(),
        json: head.headers.get(CONTENT_TYPE).is_some_and(is_json),
        body: &body,
    }
    .command()?;
    if !command.only_looks() {
        shared.authorization.check_change(by).map_err(ApiError::Forbidden)?;
    }
    let mut reply = shared.commands.ask(command, by.clone()).await?;
    if let Reply::Status(status) = &mut reply {
        status.no_metrics.clone_from(&*shared.no_metrics.lock().await);
    }
    Ok(reply)
}

async fn read<B>(body: B) -> Result<Bytes, ApiError>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let collected = timeout(BODY_PATIENCE, Limited::new(body, BODY_MAX).collect()).await;
    let late = |_| ApiError::Body(format!("it took longer than {} s", BODY_PATIENCE.as_secs()));
    let collected = collected.map_err(late)?.map_err(|error| {
        if error.is::<LengthLimitError>() {
            ApiError::TooLarge(BODY_MAX)
        } else {
            ApiError::Body(error.to_string())
        }
    })?;
    Ok(collected.to_bytes())
}

fn is_json(kind: &HeaderValue) -> bool {
    let essence = kind.to_str().ok().and_then(|kind| kind.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}
