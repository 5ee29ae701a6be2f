//! State that survives a reload, and the immutable snapshot for each request.
//!
//! A reload replaces the whole [`RouteTable`]. A [`RouteState`] is created once per route name, and
//! every later table attaches to it again. Only a [`Reservation`], and an operator who [holds units
//! back](Route::set_in_flight), changes in-flight counts.

mod carried;
mod decisions;
mod found;
mod gates;
mod guard;
mod held;
mod history;
mod lifecycle;
mod load;
mod models;
mod overrides;
mod owners;
mod pins;
pub mod recording;
mod route;
mod rules;
mod stored;
mod table;
mod target;
pub mod ticker;
mod transforms;
mod waiting;

pub use decisions::Decisions;
pub use found::{FoundPeers, SourceState, Trouble};
pub use guard::adaptive_bounds;
pub use held::{IN_FLIGHT_MAX, InFlight, NotHeld};
pub use history::{History, SAMPLES_MAX, Sample};
pub use lifecycle::{Lifecycle, Phase};
pub use load::{Pin, SessionHome};
pub use models::{ModelList, ModelLists};
pub use overrides::{Overrides, Switch};
pub use owners::{OwnerBook, OwnerRefusal, OwnerSlot, OwnerUse};
pub use route::{Admitted, Peer, Placed, Reservation, Route, RouteKeys, RouteState};
pub use rules::{ContentRules, RuleHits};
pub use stored::{StoredAt, StoredIds};
pub use table::{Entry, RouteTable, TableBuilder};
pub use target::Target;
pub use transforms::Transforms;
pub use waiting::Waiting;
