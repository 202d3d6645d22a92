// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The HTTP server on the control socket.
//!
//! hyper, on a runtime of one thread of its own: it is the HTTP implementation
//! of the language that is most used and looked after, has limits for whatever
//! a client can do slowly or too much of, and serves any number of clients
//! without a thread for each.  Everything that may block or take long (the
//! clients, the state file) happens here, and the event loop never waits for
//! this thread.
use std::{
    convert::Infallible,
    io,
    os::unix::net::UnixListener,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Bytes},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::UnixStream, sync::Semaphore, time::timeout};

use crate::{
    access::{Access, Peer},
    api::{
        ApiError, Reply,
        routes::{self, BODY_MAX},
    },
    control::Window,
    state::Store,
};

/// Clients served at once; others wait to be accepted.
const CONNECTIONS: usize = 16;
/// Longest time for the head of a request, and between two of them.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// Longest time for a connection, whatever it does.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(30);
/// Largest head of a request.
const HEAD_MAX: usize = 16 << 10;

/// What all requests share.
#[derive(Debug)]
struct Office {
    access: Access,
    window: Window,
    store: Option<Mutex<Store>>,
}

/// Serves the socket from now on, in a thread that ends with the process.
pub fn serve(
    listener: UnixListener,
    access: Access,
    window: Window,
    store: Option<Store>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let office = Arc::new(Office { access, window, store: store.map(Mutex::new) });
    let run = move || {
        if let Err(error) = runtime.block_on(accept(listener, office)) {
            log::error!("control socket failed: {error}");
        }
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(run)?;
    Ok(())
}

async fn accept(listener: UnixListener, office: Arc<Office>) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let office = Arc::clone(&office);
                tokio::spawn(async move {
                    converse(stream, office).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of file descriptors, say: that passes.
                log::warn!("control socket: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, office: Arc<Office>) {
    let admitted = admit(&stream, &office.access);
    if let Err(error) = &admitted {
        log::warn!("control socket: {error}");
    }
    let service = service_fn(|request| {
        let (office, admitted) = (Arc::clone(&office), &admitted);
        async move {
            let answer = match admitted {
                Ok(_) => respond(request, &office).await,
                Err(error) => refuse(error),
            };
            Ok::<_, Infallible>(answer)
        }
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_PATIENCE, conversation).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::debug!("control client: {error}"),
        Err(_) => log::debug!("control client: took too long"),
    }
}

/// Who has connected, if it may.
fn admit(stream: &UnixStream, access: &Access) -> Result<Peer, ApiError> {
    let unknown = |error| ApiError::Forbidden(format!("who has connected is not known: {error}"));
    let peer = Peer::of(stream).map_err(unknown)?;
    access.check(&peer).map_err(ApiError::Forbidden)?;
    Ok(peer)
}

async fn respond<B>(request: Request<B>, office: &Office) -> Response<Full<Bytes>>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match handle(request, office).await {
        Ok(reply) => match serde_json::to_vec(&reply) {
            Ok(body) => answer(StatusCode::OK, body),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into()),
        },
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &ApiError) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = answer(status, error.body().to_string().into());
    if let ApiError::Method { allowed, .. } = error {
        if let Ok(allowed) = HeaderValue::from_str(allowed) {
            response.headers_mut().insert(ALLOW, allowed);
        }
    }
    response
}

fn answer(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn handle<B>(request: Request<B>, office: &Office) -> Result<Reply, ApiError>
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
    let done = office.window.ask(command).await?;
    if let (Some((number, state)), Some(store)) = (&done.keep, &office.store) {
        store.lock().unwrap_or_else(PoisonError::into_inner).save(*number, state)?;
    }
    Ok(done.reply)
}

async fn read<B>(body: B) -> Result<Bytes, ApiError>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let collected = Limited::new(body, BODY_MAX).collect().await.map_err(|error| {
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
