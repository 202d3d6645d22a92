// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Places of clients on the control socket.
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

/// Time a client may be idle, however many others wait: on a busy host one
/// that has connected may need some time until it asks.
const GRACE: Duration = Duration::from_secs(1);
/// Time between two looks at who is idle, while there is no room.
const LOOK: Duration = Duration::from_millis(50);

/// All places.
#[derive(Debug)]
pub struct Seats {
    places: Arc<Semaphore>,
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
    /// Since when it has asked nothing; `None` while it waits for an answer.
    idle: Mutex<Option<Instant>>,
    leave: Notify,
}

/// The place of one client, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    number: u64,
    client: Arc<Client>,
    seats: Arc<Seats>,
    _place: OwnedSemaphorePermit,
}

/// A client waits for an answer, until this is dropped.
#[derive(Debug)]
pub struct Busy(Arc<Client>);

impl Seats {
    /// So many places.
    pub fn new(count: usize) -> Arc<Seats> {
        let places = Arc::new(Semaphore::new(count));
        Arc::new(Seats { places, taken: Mutex::default() })
    }

    /// A place for the next client, when there is one.
    pub async fn next(self: &Arc<Seats>) -> Seat {
        let place = loop {
            match timeout(LOOK, Arc::clone(&self.places).acquire_owned()).await {
                Ok(Ok(place)) => break place,
                // The semaphore is never closed.
                Ok(Err(_)) | Err(_) => self.make_room(),
            }
        };
        let client =
            Arc::new(Client { idle: Mutex::new(Some(Instant::now())), leave: Notify::new() });
        let mut taken = lock(&self.taken);
        let number = taken.next;
        taken.next += 1;
        taken.by.insert(number, Arc::clone(&client));
        Seat { number, client, seats: Arc::clone(self), _place: place }
    }

    /// Asks those to leave that have been idle for long.
    fn make_room(&self) {
        let idle = |client: &&Arc<Client>| {
            lock(&client.idle).is_some_and(|since| since.elapsed() >= GRACE)
        };
        for client in lock(&self.taken).by.values().filter(idle) {
            client.leave.notify_one();
        }
    }
}

impl Seat {
    /// The client has asked something.
    pub fn busy(&self) -> Busy {
        *lock(&self.client.idle) = None;
        Busy(Arc::clone(&self.client))
    }

    /// Comes when the client has to leave.
    pub async fn asked_to_leave(&self) {
        self.client.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats.taken).by.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *lock(&self.0.idle) = Some(Instant::now());
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
            let seats = Seats::new(2);
            let (asks, idles) = (seats.next().await, seats.next().await);
            let _busy = asks.busy();
            let evicted = async {
                idles.asked_to_leave().await;
                drop(idles);
            };
            let (_third, ()) = tokio::join!(seats.next(), evicted);
            let asked = timeout(Duration::from_millis(10), asks.asked_to_leave()).await;
            assert!(asked.is_err(), "who waits for an answer stays");
        });
    }
}
