// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Clients of a listener, as many as there is room for.
//!
//! Clients that ask nothing must not keep those out that do.  They may stay as
//! long as there is room; when there is none, those that have been idle for a
//! while have to leave.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::crowd::{Rank, Whose};

/// Time a client may be idle, however many others wait: its answer is on the way to it, or
/// on a busy host it needs some time until it asks.
pub const IDLE_ALLOWED: Duration = Duration::from_secs(1);
/// Time between two looks at who is idle, while there is no room.
const POLL: Duration = Duration::from_millis(50);

/// All clients, and room for more.
#[derive(Debug)]
pub struct Clients {
    places: Arc<Semaphore>,
    /// The same before it has asked anything.
    allowed_at_first: Duration,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    by: BTreeMap<u64, Arc<Client>>,
}

/// One client.
#[derive(Debug)]
struct Client {
    /// What it may and which user it is, where clients are told apart.
    by: Option<(Rank, u32)>,
    stay: Mutex<Stay>,
    leave: Notify,
}

#[derive(Debug)]
struct Stay {
    /// What it has asked and is not answered: it may ask more before it has read an answer.
    requests: usize,
    /// Until when it may be idle otherwise, however many others wait.
    until: Instant,
}

/// The place of one client, until it is dropped.
#[derive(Debug)]
pub struct ClientSlot {
    number: u64,
    client: Arc<Client>,
    clients: Arc<Clients>,
    _place: OwnedSemaphorePermit,
}

/// A client has asked something, and is not idle until this is dropped.
#[derive(Debug)]
pub struct InRequest(Arc<Client>);

impl Clients {
    /// So many places, for clients that may be idle so long before they ask.
    pub fn new(count: usize, allowed_at_first: Duration) -> Arc<Clients> {
        let places = Arc::new(Semaphore::new(count));
        Arc::new(Clients { places, allowed_at_first, taken: Mutex::default() })
    }

    /// A place for the next client, when there is one.
    pub async fn next(self: &Arc<Clients>, by: Option<(Rank, u32)>) -> ClientSlot {
        loop {
            match timeout(POLL, Arc::clone(&self.places).acquire_owned()).await {
                Ok(Ok(place)) => return self.seat(place, by),
                // The semaphore is never closed.
                Ok(Err(_)) | Err(_) => self.make_room(|_| true),
            }
        }
    }

    /// A place, if there is one.
    pub fn free(self: &Arc<Clients>, by: Option<(Rank, u32)>) -> Option<ClientSlot> {
        Arc::clone(&self.places).try_acquire_owned().ok().map(|place| self.seat(place, by))
    }

    fn seat(
        self: &Arc<Clients>,
        place: OwnedSemaphorePermit,
        by: Option<(Rank, u32)>,
    ) -> ClientSlot {
        let until = Instant::now() + self.allowed_at_first;
        let stay = Mutex::new(Stay { requests: 0, until });
        let client = Arc::new(Client { by, stay, leave: Notify::new() });
        let mut taken = lock(&self.taken);
        let number = taken.next;
        taken.next += 1;
        taken.by.insert(number, Arc::clone(&client));
        ClientSlot { number, client, clients: Arc::clone(self), _place: place }
    }

    /// Asks those of these clients to leave that have been idle for long.
    pub fn make_room_among(&self, (rank, user): Whose) {
        self.make_room(|client| {
            client.by.is_some_and(|(its, uid)| its == rank && user.is_none_or(|user| user == uid))
        });
    }

    fn make_room(&self, among: impl Fn(&Client) -> bool) {
        let now = Instant::now();
        let idle = |stay: &Stay| stay.requests == 0 && stay.until <= now;
        for client in lock(&self.taken).by.values() {
            if among(client) && idle(&lock(&client.stay)) {
                client.leave.notify_one();
            }
        }
    }
}

impl ClientSlot {
    /// The client has asked something.
    pub fn busy(&self) -> InRequest {
        lock(&self.client.stay).requests += 1;
        InRequest(Arc::clone(&self.client))
    }

    /// Comes when the client has to leave.
    pub async fn asked_to_leave(&self) {
        self.client.leave.notified().await;
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        lock(&self.clients.taken).by.remove(&self.number);
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        let mut stay = lock(&self.0.stay);
        stay.requests -= 1;
        stay.until = Instant::now() + IDLE_ALLOWED;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t10_the_idle_leave_for_those_who_ask() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let clients = Clients::new(2, POLL);
            let (asks, idles) = (clients.next(None).await, clients.next(None).await);
            let _busy = asks.busy();
            let evicted = async {
                idles.asked_to_leave().await;
                drop(idles);
            };
            let (_third, ()) = tokio::join!(clients.next(None), evicted);
            let asked = timeout(Duration::from_millis(10), asks.asked_to_leave()).await;
            assert!(asked.is_err(), "who waits for an answer stays");
        });
    }
}
