//! Locks mutexes whose values stay consistent even if a thread panics while it has the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the lock. Ignores that another thread has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
