//! The units of a program that have a store open together: they agree on each stage, and see each other's
//! memory.

use crate::disk::StoreError;
use crate::file::Options;
use polyduct_message::domain::{Domain, Region};
use polyduct_port::{PortError, PortName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Tags of messages.
const REPORT: u32 = 1;
const VERDICT: u32 = 2;
/// The region of each unit's rows.
const ROWS: u32 = 1;
/// The longest reason that is told to others.
const REASON: usize = 1000;

/// The units of a program; it may be one.
pub struct Team {
    domain: Option<Domain>,
    store: String,
}

/// What units come together for. All must come for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Opening the dataset.
    Open,
    /// Having opened what belongs to it.
    Ready,
    /// Showing each other memory.
    Memory,
    /// A step.
    Step,
    /// Closing.
    Close,
}

impl Stage {
    const ALL: [Stage; 5] = [Stage::Open, Stage::Ready, Stage::Memory, Stage::Step, Stage::Close];

    fn says(number: u32) -> &'static str {
        match Stage::ALL.get(number as usize) {
            Some(Stage::Open) => "opens the dataset",
            Some(Stage::Ready | Stage::Memory) => "is not ready yet",
            Some(Stage::Step) => "comes with another step",
            Some(Stage::Close) => "closes the dataset",
            None => "does something unknown",
        }
    }
}

/// What unit 0 makes of what all have said.
#[derive(Serialize, Deserialize)]
enum Verdict<T> {
    Yes(T),
    No { unit: u32, reason: String },
}

impl Team {
    /// Meets the others; `name` is what the program opens, the same in all units.
    ///
    /// # Errors
    /// [`StoreError::Message`] when they do not come.
    pub fn join(store: &str, name: &str, options: &Options) -> Result<Team, StoreError> {
        if options.port.units <= 1 {
            return Ok(Team { domain: None, store: store.to_owned() });
        }
        let hash = blake3::hash(format!("{}\0{name}", options.port.program).as_bytes()).to_hex();
        let mut wishes = polyduct_message::domain::Options::new(
            &format!("store-{}", &hash[..32]),
            options.port.unit,
            options.port.units,
        );
        wishes.open_timeout = options.port.open_timeout;
        wishes.timeout = options.port.timeout;
        wishes.interrupt = options.port.interrupt.clone();
        let domain = Domain::join(wishes).map_err(StoreError::message(store))?;
        Ok(Team { domain: Some(domain), store: store.to_owned() })
    }

    /// This unit's number.
    pub fn unit(&self) -> u32 {
        self.domain.as_ref().map_or(0, Domain::unit)
    }

    /// All say how far they have come: unit 0 makes one thing of it, which all get. When any of them, or unit
    /// 0, could not go on, all get that.
    ///
    /// # Errors
    /// This unit's own error; [`PortError::PeerAborted`] with that of another; [`StoreError::Message`] when
    /// one is lost.
    pub fn agree<A, T>(
        &self,
        stage: Stage,
        mine: Result<A, StoreError>,
        decide: impl FnOnce(Vec<A>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError>
    where
        A: Serialize + DeserializeOwned,
        T: Serialize + DeserializeOwned,
    {
        let Some(domain) = &self.domain else { return decide(vec![mine?]) };
        let message = StoreError::message(&self.store);
        let mut own = None;
        let said: Result<A, String> = mine.map_err(|e| {
            let text = e.to_string().chars().take(REASON).collect();
            own = Some(e);
            text
        });
        if domain.unit() > 0 {
            domain.send(0, REPORT, [stage as u32, 0], &self.pack(&said)?).map_err(&message)?;
            let verdict = domain.recv(Some(0), Some(VERDICT)).map_err(&message)?;
            return match (own, self.unpack::<Verdict<T>>(0, &verdict.payload)?) {
                (Some(own), _) => Err(own),
                (None, Verdict::Yes(what)) => Ok(what),
                (None, Verdict::No { unit, reason }) => Err(StoreError::Port(PortError::PeerAborted {
                    port: PortName::Store(self.store.clone()),
                    peer: unit.into(),
                    reason,
                })),
            };
        }
        let mut all = vec![said];
        for unit in 1..domain.units() {
            let report = domain.recv(Some(unit), Some(REPORT)).map_err(&message)?;
            all.push(match report.words[0] == stage as u32 {
                true => self.unpack(unit, &report.payload)?,
                false => {
                    let (it, we) = (Stage::says(report.words[0]), Stage::says(stage as u32));
                    Err(format!("it {it} while unit 0 {we}: all must write as many steps"))
                }
            });
        }
        let bad = (0..).zip(&all).find_map(|(unit, said)| Some((unit, said.as_ref().err()?.clone())));
        let decided = match bad {
            Some((unit, reason)) => Err(own.take().unwrap_or(StoreError::Port(PortError::PeerAborted {
                port: PortName::Store(self.store.clone()),
                peer: unit.into(),
                reason,
            }))),
            None => decide(all.into_iter().flatten().collect()),
        };
        let verdict = match &decided {
            Ok(what) => self.pack(&Verdict::Yes(what))?,
            Err(StoreError::Port(PortError::PeerAborted { peer, reason, .. })) => {
                self.pack(&Verdict::<T>::No { unit: peer.unit, reason: reason.clone() })?
            }
            Err(e) => {
                let reason = e.to_string().chars().take(REASON).collect();
                self.pack(&Verdict::<T>::No { unit: 0, reason })?
            }
        };
        for unit in 1..domain.units() {
            domain.send(unit, VERDICT, [0; 2], &verdict).map_err(&message)?;
        }
        decided
    }

    /// Waits for all, none of whom has failed.
    ///
    /// # Errors
    /// As [`agree`](Team::agree).
    pub fn meet(&self, stage: Stage, mine: Result<(), StoreError>) -> Result<(), StoreError> {
        self.agree(stage, mine, |_| Ok(()))
    }

    /// Memory of this unit that the others see; each has at least a byte.
    ///
    /// # Errors
    /// [`StoreError::Message`].
    pub fn share(&self, len: usize) -> Result<Option<Region>, StoreError> {
        let region = self.domain.as_ref().map(|domain| domain.region(ROWS, len.max(1))).transpose();
        region.map_err(StoreError::message(&self.store))
    }

    /// That of a unit.
    ///
    /// # Errors
    /// [`StoreError::Message`].
    pub fn shared(&self, unit: u32) -> Result<Option<Region>, StoreError> {
        let region = self.domain.as_ref().map(|domain| domain.region_of(unit, ROWS)).transpose();
        region.map_err(StoreError::message(&self.store))
    }

    fn pack(&self, what: &impl Serialize) -> Result<Vec<u8>, StoreError> {
        postcard::to_allocvec(what).map_err(|e| self.nonsense(self.unit(), &e))
    }

    fn unpack<T: DeserializeOwned>(&self, unit: u32, bytes: &[u8]) -> Result<T, StoreError> {
        match postcard::take_from_bytes(bytes) {
            Ok((what, [])) => Ok(what),
            Ok(_) => Err(self.nonsense(unit, &"there are more bytes than expected")),
            Err(e) => Err(self.nonsense(unit, &e)),
        }
    }

    fn nonsense(&self, unit: u32, e: &dyn std::fmt::Display) -> StoreError {
        let reason = format!("what it said makes no sense: {e}");
        StoreError::Port(PortError::PeerAborted {
            port: PortName::Store(self.store.clone()),
            peer: unit.into(),
            reason,
        })
    }
}
