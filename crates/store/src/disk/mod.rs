//! A store on disks: one array, or many, over the directories of several units, with parity, and never torn.
//!
//! | module | idea |
//! |---|---|
//! | [`manifest`] | what a store is made of, as text |
//! | [`disks`], `unit_logs` | the units as directories: the driver of [`volume`](crate::volume); their logs |
//! | `home` | what the protocol keeps in the store's own directory |
//! | [`meta`] | what is known of a dataset; where its steps lie |
//! | [`events`] | what happened, as text |
//! | [`store`], `create`, `owned` | a store: opened; made; changed by one process at a time |
//! | `windows` | the rows of a step as windows, which the units put together |
//! | `io`, `requests` | rows between memory and disks, real or simulated; many requests at once |
//! | [`writer`], [`reader`] | the two ports |
//! | [`folder`] | several datasets that are written, and found, as one thing |
//! | [`access`] | any box of a dataset, without a port |
//! | `boxes`, `fetch`, `mender` | a box as pieces of blocks; single blocks, read and checked; or found otherwise |

pub mod access;
mod boxes;
mod create;
pub mod disks;
mod error;
pub mod events;
mod fetch;
pub mod folder;
mod home;
mod io;
pub mod manifest;
mod mender;
pub mod meta;
mod owned;
pub mod reader;
mod replace;
mod requests;
mod shelf;
pub mod store;
mod turn;
mod unit_logs;
mod windows;
pub mod writer;

pub use access::StoredArray;
pub use boxes::Slice;
pub use create::Create;
pub use error::StoreError;
pub use folder::FolderWriter;
#[doc(hidden)]
pub use io::RowIo;
pub use meta::{Fill, Meta};
pub use owned::Owned;
pub use reader::StoreReader;
pub use store::{nonce, split, split_folder, Store};
pub use writer::{StoreStepMut, StoreWriter};
